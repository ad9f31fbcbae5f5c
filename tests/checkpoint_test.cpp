#include "run/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/atomic_file.h"
#include "run/run_folder.h"

namespace melete {
namespace checkpoint_test {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = (fs::temp_directory_path() / "melete-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~CheckpointTest() override {
    AtomicFile::fail_after_bytes(-1);
    fs::remove_all(folder_);
  }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

Checkpoint example(int64_t step) {
  Checkpoint checkpoint;
  checkpoint.meta = {{"step", step}, {"task", "soundstream"}, {"config", {{"model", {{"channels", 32}}}}}};
  checkpoint.tensors["model.weight"] = at::arange(60, at::kFloat).view({3, 4, 5}) + static_cast<double>(step);
  checkpoint.tensors["model.bias"] = at::ones({3}, at::kDouble);
  checkpoint.tensors["ema.weight"] = at::zeros({2, 2}, at::kBFloat16);
  checkpoint.tensors["optimiser.generator.step"] = at::scalar_tensor(step, at::kLong);
  checkpoint.tensors["random.state"] = at::arange(7, at::kByte);
  checkpoint.tensors["quantizer.mask"] = at::ones({5}, at::kBool);
  checkpoint.tensors["empty"] = at::empty({0, 4}, at::kFloat);
  return checkpoint;
}

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(CheckpointTest, RoundTripIsBitExact) {
  const Checkpoint saved = example(7);
  save_checkpoint(at("a.safetensors"), saved);
  const Checkpoint loaded = load_checkpoint(at("a.safetensors"));
  EXPECT_EQ(loaded.meta, saved.meta);
  EXPECT_EQ(loaded.step(), 7);
  ASSERT_EQ(loaded.tensors.size(), saved.tensors.size());
  for (const auto& [name, tensor] : saved.tensors) {
    ASSERT_EQ(loaded.tensors.count(name), 1u) << name;
    EXPECT_EQ(loaded.tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(loaded.tensors.at(name), tensor)) << name;
  }
  EXPECT_EQ(loaded.part("model.").size(), 2u);
  EXPECT_EQ(loaded.part("model.").count("weight"), 1u);
}

TEST_F(CheckpointTest, LoadedTensorsOutliveTheFileAndCanBeChanged) {
  save_checkpoint(at("a"), example(7));
  const std::string before = slurp(at("a"));
  Checkpoint loaded = load_checkpoint(at("a"));
  loaded.tensors.at("model.weight").fill_(3);
  EXPECT_EQ(slurp(at("a")), before);
  fs::remove(at("a"));
  EXPECT_EQ(loaded.tensors.at("model.weight").sum().item<float>(), 180);
  EXPECT_EQ(loaded.tensors.at("model.bias").sum().item<double>(), 3);
}

TEST_F(CheckpointTest, StridedTensorsAreWrittenAsTheyRead) {
  Checkpoint checkpoint = example(1);
  checkpoint.tensors["model.weight"] = at::arange(12, at::kFloat).view({3, 4}).t();
  save_checkpoint(at("a"), checkpoint);
  EXPECT_TRUE(
      at::equal(load_checkpoint(at("a")).tensors.at("model.weight"), checkpoint.tensors["model.weight"]));
}

TEST_F(CheckpointTest, TensorsAtOddAddressesAreRead) {
  // Another program may put one byte before the floats.
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  const float values[2] = {1.5f, -2.0f};
  file += header + '\x05' + std::string(reinterpret_cast<const char*>(values), 8);
  spill(at("odd"), file);
  const TensorMap tensors = read_tensors(at("odd"));
  EXPECT_EQ(tensors.at("b")[0].item<float>(), 1.5f);
  EXPECT_EQ(tensors.at("b")[1].item<float>(), -2.0f);
}

TEST_F(CheckpointTest, ComplexAndUndefinedTensorsAreRefusedByName) {
  TensorMap tensors{{"odd.one", at::zeros({2}, at::kComplexFloat)}};
  EXPECT_TRUE(contains(error_of([&] { write_tensors(at("a"), tensors); }), "odd.one"));
  tensors = {{"nothing", at::Tensor()}};
  EXPECT_TRUE(contains(error_of([&] { write_tensors(at("a"), tensors); }), "nothing"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(CheckpointTest, EveryTruncationIsRefusedByName) {
  save_checkpoint(at("whole"), example(7));
  const std::string whole = slurp(at("whole"));
  for (size_t size = 0; size < whole.size(); size += size < 64 ? 1 : 37) {
    spill(at("cut"), whole.substr(0, size));
    const std::string message = error_of([&] { load_checkpoint(at("cut")); });
    EXPECT_TRUE(contains(message, at("cut")) && contains(message, "truncated")) << size << ": " << message;
  }
}

TEST_F(CheckpointTest, EveryBitFlipIsRefused) {
  save_checkpoint(at("whole"), example(7));
  const std::string whole = slurp(at("whole"));
  Rng rng(3);
  int by_checksum = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << rng.integer(0, 8)));
    spill(at("flipped"), flipped);
    const std::string message = error_of([&] { load_checkpoint(at("flipped")); });
    EXPECT_TRUE(contains(message, at("flipped"))) << "byte " << i << ": " << message;
    by_checksum += contains(message, "checksum");
  }
  EXPECT_GT(by_checksum, 300);  // at least all bytes of the tensors
}

TEST_F(CheckpointTest, RefusesWhatIsNotOneOrNewerOrOversized) {
  write_tensors(at("weights"), {{"w", at::ones({2})}}, {{"format", "pt"}});
  EXPECT_TRUE(contains(error_of([&] { load_checkpoint(at("weights")); }), "not a checkpoint"));
  write_tensors(at("newer"), {}, {{"melete.checkpoint", "2"}, {"melete.meta", "{}"}, {"melete.xxh3", ""}});
  EXPECT_TRUE(contains(error_of([&] { load_checkpoint(at("newer")); }), "newer"));
  spill(at("oversized"), std::string("\xff\xff\xff\xff\xff\0\0\0{}", 10));
  EXPECT_TRUE(contains(error_of([&] { load_checkpoint(at("oversized")); }), "oversized header"));
  Checkpoint no_step;
  no_step.meta = {{"task", "x"}};
  EXPECT_THROW(save_checkpoint(at("a"), no_step), Error);
}

TEST_F(CheckpointTest, AWriteThatFailsHalfWayLeavesThePreviousOne) {
  RunFolder run(at("run"), StartMode::new_run);
  run.save(example(10), {});
  for (const int64_t limit : {int64_t{0}, int64_t{100}, int64_t{700}}) {
    AtomicFile::fail_after_bytes(limit);
    EXPECT_TRUE(contains(error_of([&] { run.save(example(20), {}); }), "step_00000020"));
    EXPECT_TRUE(contains(error_of([&] { run.save(example(10), {}); }), "No space left"));
    AtomicFile::fail_after_bytes(-1);
    const auto found = run.latest_usable([](const std::string& text) { ADD_FAILURE() << text; });
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->checkpoint.step(), 10);
  }
}

TEST_F(CheckpointTest, RunFolderRefusesToStartOverAndFreshMovesAside) {
  EXPECT_TRUE(contains(error_of([&] { RunFolder(at("run"), StartMode::resume); }), "no run here"));
  EXPECT_FALSE(fs::exists(at("run")));
  {
    RunFolder run(at("run"), StartMode::new_run);
    run.write_config({{"a", 1}}, "a = 1\n");
  }
  {
    RunFolder again(at("run"), StartMode::new_run);
  }  // a start that failed before step 1 does not block the next
  for (int round = 1; round <= 3; ++round) {
    {
      RunFolder run(at("run"), round == 1 ? StartMode::new_run : StartMode::fresh);
      EXPECT_EQ(run.moved_aside(), round == 1 ? "" : at("run") + ".old-" + std::to_string(round - 1));
      run.save(example(round), {});
    }
    EXPECT_TRUE(contains(error_of([&] { RunFolder(at("run"), StartMode::new_run); }), "--resume"));
  }
  EXPECT_EQ(load_checkpoint(at("run.old-1/checkpoints/step_00000001.safetensors")).step(), 1);
  EXPECT_EQ(load_checkpoint(at("run.old-2/checkpoints/step_00000002.safetensors")).step(), 2);
  RunFolder resumed(at("run/"), StartMode::resume);
  EXPECT_EQ(resumed.latest_usable(nullptr)->checkpoint.step(), 3);
}

TEST_F(CheckpointTest, TwoWritersAreRefusedAndALockDiesWithItsProcess) {
  {
    RunFolder run(at("run"), StartMode::new_run);
    run.save(example(1), {});
    for (const StartMode mode : {StartMode::resume, StartMode::fresh}) {
      const std::string message = error_of([&] { RunFolder(at("run"), mode); });
      EXPECT_TRUE(contains(message, "another process") && contains(message, std::to_string(::getpid())))
          << message;
    }
    EXPECT_FALSE(fs::exists(at("run.old-1")));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    RunFolder held(at("run"), StartMode::resume);
    ::_exit(0);  // no destructor
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_NO_THROW(RunFolder(at("run"), StartMode::resume));
}

TEST_F(CheckpointTest, OrderComesFromInsideTheFileAndBrokenOnesAreSkippedByName) {
  RunFolder run(at("run"), StartMode::new_run);
  for (const int64_t step : {10, 20, 30}) run.save(example(step), {});
  fs::rename(run.checkpoint_path(10), at("run/checkpoints/zz_renamed.safetensors"));
  std::vector<CheckpointEntry> entries = run.checkpoints();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].step, 30);
  EXPECT_EQ(entries[2].step, 10);
  EXPECT_TRUE(contains(entries[2].path, "zz_renamed"));

  std::string last = slurp(run.checkpoint_path(30));
  last.back() = static_cast<char>(last.back() ^ 1);
  spill(run.checkpoint_path(30), last);                                                     // bad checksum
  spill(at("run/checkpoints/step_00000040.safetensors"), last.substr(0, last.size() / 2));  // cut
  spill(at("run/checkpoints/notes.txt"), "not looked at");
  std::vector<std::string> warnings;
  const auto found = run.latest_usable([&](const std::string& text) { warnings.push_back(text); });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->checkpoint.step(), 20);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_TRUE(contains(warnings[0], "step_00000040") && contains(warnings[0], "truncated")) << warnings[0];
  EXPECT_TRUE(contains(warnings[1], "step_00000030") && contains(warnings[1], "checksum")) << warnings[1];
}

TEST_F(CheckpointTest, KeepsTheLastAndEveryNth) {
  RunFolder run(at("run"), StartMode::new_run);
  for (int64_t step = 10; step <= 120; step += 10) run.save(example(step), {.last = 2, .every = 50});
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : run.checkpoints()) steps.push_back(entry.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{120, 110, 100, 50}));
  run.save(example(130), {.last = 0, .every = 0});  // the one just written always stays
  ASSERT_EQ(run.checkpoints().size(), 1u);
  EXPECT_EQ(run.checkpoints()[0].step, 130);
}

TEST_F(CheckpointTest, StaleTemporariesGoAtTheStart) {
  { RunFolder(at("run"), StartMode::new_run).save(example(1), {}); }
  const std::string stale = at("run/checkpoints/.step_00000002.safetensors.99-1.melete-tmp");
  spill(stale, "half");
  RunFolder run(at("run"), StartMode::resume);
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_EQ(run.checkpoints().size(), 1u);
}

TEST_F(CheckpointTest, MetricsAreCutToTheCheckpoint) {
  RunFolder run(at("run"), StartMode::new_run);
  EXPECT_EQ(run.truncate_metrics(5), 0);
  const std::string kept =
      "{\"kind\":\"start\",\"step\":0}\n{\"kind\":\"step\",\"step\":1}\n{\"kind\":\"step\",\"step\":2}\n"
      "{\"kind\":\"saved\",\"step\":2}\n";
  spill(run.metrics_path(),
        kept + "{\"kind\":\"step\",\"step\":3}\n{\"kind\":\"note\"}\n{\"kind\":\"step\",\"ste");
  EXPECT_EQ(run.truncate_metrics(2), 3);
  EXPECT_EQ(slurp(run.metrics_path()), kept);
  EXPECT_EQ(run.truncate_metrics(2), 0);
  spill(run.metrics_path(), kept + "{\"kind\":\"step\",\"step\":1}");  // whole, but without its line end
  EXPECT_EQ(run.truncate_metrics(2), 1);
  EXPECT_EQ(slurp(run.metrics_path()), kept);
}

}  // namespace checkpoint_test
}  // namespace melete
