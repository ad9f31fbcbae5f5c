// The real program, started, interrupted, killed and starved, as a person's machine does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "core/base/error.h"
#include "core/base/random.h"
#include "data/base/manifest.h"
#include "data/base/synth_music.h"
#include "real_process.h"
#include "run/run_folder.h"

namespace melete {
namespace process_test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A codec so small that a step takes milliseconds, with everything switched on that a resume could get wrong:
// accumulation, an average that is updated only now and then, quantizer dropout, gradient penalty, batches
// that do not divide an epoch.
constexpr const char* kRecipe = R"(
batch_size = 3
threads = 1
gradient_penalty_every = 4
[model]
discriminator_scales = [1, 0.5]
[model.codec]
sample_rate_hz = 8000
channels = 4
strides = [2, 4, 4]
channel_multiples = [1, 2, 2]
dim = 16
attention_heads = 2
attention_head_dim = 8
attention_window = 8
[model.codec.quantizer]
quantizers = 3
codebook_size = 16
[model.multi_scale]
channels = 4
layers = 2
groups = [2, 4]
max_channels = 16
[model.stft]
channels = 2
channel_multiples = [1, 2]
frequency_strides = [1, 2]
time_strides = [2, 2]
n_fft = 128
hop = 32
window = 128
[model.loss.mel]
window_powers = [6, 8]
n_ffts = [256]
mels = [8]
[generator.schedule]
warmup_steps = 5
kind = "cosine"
decay_steps = 40
[data]
segment_seconds = 0.25
valid_fraction = 0.2
[train]
accumulate = 2
save_every = 4
validate_every = 6
validate_batches = 1
sample_every = 12
[train.ema]
beta = 0.9
update_after_step = 4
update_every = 3
)";

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// Steps in metrics.jsonl, in the order of the file.
std::vector<int64_t> steps_logged(const fs::path& run) {
  std::vector<int64_t> steps;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object() && row.value("kind", "") == "step") steps.push_back(row.at("step"));
  }
  return steps;
}

std::vector<int64_t> counted_to(int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t i = 1; i <= last; ++i) steps.push_back(i);
  return steps;
}

void expect_same_bits(const std::string& path_a, const std::string& path_b) {
  const Checkpoint a = load_checkpoint(path_a), b = load_checkpoint(path_b);
  EXPECT_EQ(a.step(), b.step());
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  int64_t different = 0;
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_EQ(b.tensors.count(name), 1u) << name;
    if (!tensor.equal(b.tensors.at(name)) && ++different <= 5)
      ADD_FAILURE() << name << " differs between " << path_a << " and " << path_b;
  }
  EXPECT_EQ(different, 0);
}

class RealProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (fs::temp_directory_path() / "melete-process-XXXXXX").string();
    shared_ = ::mkdtemp(pattern.data());
    SynthOptions options;
    options.folder = (shared_ / "music").string();
    options.count = 11;
    options.rate_hz = 8000;
    options.seconds = 1;
    options.format = "wav";
    synth_music(options);
    write_text(shared_ / "recipe.toml", kRecipe);
  }
  static void TearDownTestSuite() { fs::remove_all(shared_); }

  void SetUp() override {
    folder_ = shared_ / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(folder_);
  }

  static std::vector<std::string> first_words(const fs::path& out, int64_t steps) {
    return {"train",   "soundstream",        "--config", (shared_ / "recipe.toml").string(),
            "--data",  music().string(),     "--out",    out.string(),
            "--steps", std::to_string(steps)};
  }
  static std::vector<std::string> resume_words(const fs::path& out, int64_t steps) {
    return {"train", "soundstream", "--out", out.string(), "--steps", std::to_string(steps), "--resume"};
  }
  Ended run(const std::vector<std::string>& words, const Process::Setup& setup = {}) {
    Process process(MELETE_PROGRAM, words, folder_ / "log", setup);
    return process.wait();
  }
  void run_well(const std::vector<std::string>& words) {
    const Ended ended = run(words);
    ASSERT_EQ(ended.code, 0) << ended.output;
  }
  // Waits until `done` or the process has ended by itself; false in the second case or after a minute.
  static bool wait_until(Process& process, const std::function<bool()>& done) {
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (std::chrono::steady_clock::now() < limit) {
      if (done()) return true;
      if (!process.running()) return false;
      std::this_thread::sleep_for(200us);
    }
    return false;
  }

  static fs::path music() { return shared_ / "music"; }
  static std::string checkpoint(const fs::path& run, int64_t step) {
    return (run / "checkpoints" / (step_name(step) + ".safetensors")).string();
  }
  // What an uninterrupted run of that many steps leaves; made once for all tests.
  static std::string reference(int64_t steps) {
    const fs::path run = shared_ / fmt::format("reference-{}", steps);
    if (!fs::exists(run)) {
      Process process(MELETE_PROGRAM, first_words(run, steps), shared_ / "reference-log");
      const Ended ended = process.wait();
      require(ended.code == 0, "[test] the reference run failed: {}", ended.output);
    }
    return checkpoint(run, steps);
  }

  static inline fs::path shared_;
  fs::path folder_;
};

TEST_F(RealProgram, KilledRunResumesBitForBit) {
  constexpr int64_t kSteps = 23;  // mid-epoch, between two updates of the average
  const std::string expected = reference(kSteps);
  Rng rng(77);
  for (int trial = 0; trial < 2; ++trial) {
    const fs::path out = folder_ / fmt::format("run-{}", trial);
    std::vector<std::string> words = first_words(out, kSteps);
    int64_t kills = 0;
    for (const int64_t at : {rng.integer(4, 11), rng.integer(12, 20)}) {
      Process process(MELETE_PROGRAM, words, folder_ / "log");
      const bool reached = wait_until(process, [&] {
        const auto steps = steps_logged(out);
        return !steps.empty() && steps.back() >= at;
      });
      process.send(SIGKILL);
      const Ended ended = process.wait();
      ASSERT_TRUE(reached) << ended.output;
      kills += ended.signal == SIGKILL;
      words = resume_words(out, kSteps);
    }
    EXPECT_EQ(kills, 2);
    run_well(words);
    expect_same_bits(expected, checkpoint(out, kSteps));
    EXPECT_EQ(steps_logged(out), counted_to(kSteps)) << "every step must be in metrics.jsonl once";
  }
}

TEST_F(RealProgram, ValidationSamplesAndSavesDoNotChangeTheTraining) {
  const fs::path out = folder_ / "run";
  auto words = first_words(out, 23);
  for (const char* word :
       {"--train.validate_every", "0", "--train.sample_every", "0", "--train.save_every", "0"})
    words.push_back(word);
  run_well(words);
  expect_same_bits(reference(23), checkpoint(out, 23));
}

TEST_F(RealProgram, KilledDuringCheckpointWrites) {
  constexpr int64_t kSteps = 23;
  const std::string expected = reference(kSteps);
  const fs::path out = folder_ / "run", checkpoints = out / "checkpoints";
  const auto writing = [&] {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(checkpoints, error))
      if (entry.path().filename().string().starts_with('.')) return true;
    return false;
  };
  auto words = first_words(out, kSteps);
  words.insert(words.end(), {"--train.save_every", "1"});
  Rng rng(78);
  int caught = 0;
  int64_t step = 0;
  for (int kill = 0; kill < 6; ++kill) {
    Process process(MELETE_PROGRAM, words, folder_ / "log");
    // Stale files of the kill before are cleared at start; then some checkpoints later, in the middle of a
    // write.
    const int64_t from = step + rng.integer(1, 4);
    const bool reached = wait_until(process, [&] { return fs::exists(checkpoint(out, from)) && writing(); });
    process.send(SIGKILL);
    const Ended ended = process.wait();
    ASSERT_TRUE(reached) << ended.output;
    ASSERT_EQ(ended.signal, SIGKILL);
    caught += writing();
    const auto found = latest_usable(out.string(), [](const std::string& text) { ADD_FAILURE() << text; });
    ASSERT_TRUE(found.has_value());
    EXPECT_GE(found->checkpoint.step(), from);
    step = found->checkpoint.step();
    words = resume_words(out, kSteps);
    if (step >= kSteps - 5) break;
  }
  EXPECT_GT(caught, 0) << "no kill fell into a write, so this test has shown nothing";
  run_well(words);
  expect_same_bits(expected, checkpoint(out, kSteps));
  EXPECT_FALSE(writing()) << "half-written files must be cleared away";
  EXPECT_EQ(steps_logged(out), counted_to(kSteps));
}

TEST_F(RealProgram, InterruptSavesAndResumes) {
  constexpr int64_t kSteps = 23;
  const fs::path out = folder_ / "run";
  for (const int signal : {SIGINT, SIGTERM}) {
    const bool first = signal == SIGINT;
    Process process(MELETE_PROGRAM, first ? first_words(out, kSteps) : resume_words(out, kSteps),
                    folder_ / "log");
    const int64_t at = first ? 6 : 14;
    ASSERT_TRUE(wait_until(process, [&] {
      const auto steps = steps_logged(out);
      return !steps.empty() && steps.back() >= at;
    })) << process.wait().output;
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.code, 130) << ended.output;
    const int64_t last = steps_logged(out).back();
    EXPECT_LT(last, kSteps);
    EXPECT_THAT(ended.output, HasSubstr(fmt::format("stopped after step {}", last)));
    EXPECT_EQ(load_checkpoint(checkpoint(out, last)).step(), last) << "the last step must be saved";
  }
  run_well(resume_words(out, kSteps));
  expect_same_bits(reference(kSteps), checkpoint(out, kSteps));
  EXPECT_EQ(steps_logged(out), counted_to(kSteps));
}

TEST_F(RealProgram, BrokenLastCheckpointIsNamedAndTheOneBeforeTaken) {
  const fs::path good = folder_ / "good";
  run_well(first_words(good, 12));  // checkpoints of steps 4, 8 and 12
  const std::string bytes = read_text(checkpoint(good, 12));
  ASSERT_GT(bytes.size(), 10000u);
  std::map<std::string, std::string> broken;
  broken["truncated"] = bytes.substr(0, bytes.size() / 2);
  broken["almost empty"] = bytes.substr(0, 5);
  broken["bit-flipped"] = bytes;
  broken["bit-flipped"][bytes.size() - 777] ^= 4;
  broken["oversized header"] = bytes;
  broken["oversized header"].replace(0, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  for (const auto& [what, text] : broken) {
    SCOPED_TRACE(what);
    const fs::path out = folder_ / "run";
    fs::remove_all(out);
    fs::copy(good, out, fs::copy_options::recursive);
    write_text(checkpoint(out, 12), text);
    const Ended ended = run(resume_words(out, 14));
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("step_00000012.safetensors"));
    EXPECT_THAT(ended.output, HasSubstr("checkpoint left out"));
    EXPECT_EQ(steps_logged(out), counted_to(14));
    expect_same_bits(reference(14), checkpoint(out, 14));
  }
  // Nothing left that can be used: one line that says so, and nothing is started over.
  const fs::path out = folder_ / "run";
  for (const auto& entry : list_checkpoints(out.string())) write_text(entry.path, "garbage");
  const Ended ended = run(resume_words(out, 16));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("no checkpoint to resume from"));
  EXPECT_EQ(read_text(checkpoint(out, 14)), "garbage");
}

TEST_F(RealProgram, FailedWriteLeavesThePreviousCheckpoint) {
  const fs::path out = folder_ / "run";
  run_well(first_words(out, 8));
  const std::string before = read_text(checkpoint(out, 8));
  const auto full_disk = [] { ::setenv("MELETE_FAIL_AFTER_BYTES", "60000", 1); };
  const auto limited_files = [] {
    const rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  for (const Process::Setup& setup : {Process::Setup(full_disk), Process::Setup(limited_files)}) {
    auto words = resume_words(out, 14);
    words.insert(words.end(), {"--train.sample_every", "0"});  // their files would be the first to fail
    const Ended ended = run(words, setup);
    EXPECT_EQ(ended.code, 1) << ended.signal << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("step_00000012.safetensors] "));
    EXPECT_THAT(ended.output, HasSubstr("what was there before is still there"));
    EXPECT_EQ(read_text(checkpoint(out, 8)), before);
    EXPECT_FALSE(fs::exists(checkpoint(out, 12)));
  }
  run_well(resume_words(out, 14));
  expect_same_bits(reference(14), checkpoint(out, 14));
  EXPECT_EQ(steps_logged(out), counted_to(14));
}

TEST_F(RealProgram, UnreadableRecordingsAreNamedAndCounted) {
  const fs::path data = folder_ / "data";
  fs::copy(music(), data);
  write_text(data / "broken.wav", "this is not a recording");
  write_text(data / "empty.flac", "");
  auto words = first_words(folder_ / "run", 4);
  words[5] = data.string();
  Ended ended = run(words);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("broken.wav"), HasSubstr("empty.flac"), HasSubstr("2 of 13 recordings")));

  // Sound when indexed, broken later: the run meets it on its way, names it once and goes on.
  fs::remove(data / "broken.wav");
  fs::remove(data / "empty.flac");
  const std::string manifest = (folder_ / "all.jsonl").string();
  write_manifest(manifest, load_entries(data.string()));
  write_text(data / "music_000003.wav", "gone");
  words = first_words(folder_ / "run-2", 12);
  words[5] = manifest;
  words.insert(words.end(), {"--data.valid_fraction", "0", "--data.max_failed_share", "0.2"});
  ended = run(words);
  EXPECT_EQ(ended.code, 0) << ended.output;
  const size_t named = ended.output.find("skipped " + (data / "music_000003.wav").string());
  EXPECT_NE(named, std::string::npos) << ended.output;
  EXPECT_EQ(ended.output.find("skipped " + (data / "music_000003.wav").string(), named + 1),
            std::string::npos)
      << "named once";

  for (const auto& entry : fs::directory_iterator(data))
    if (entry.path().extension() == ".wav") write_text(entry.path(), "gone");
  words = first_words(folder_ / "run-3", 4);
  words[5] = data.string();
  ended = run(words);
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("none of the 11 recordings"));
  EXPECT_FALSE(fs::exists(folder_ / "run-3")) << "a start that fails leaves no run folder behind";
  words[5] = manifest;
  ended = run(words);
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("unreadable"), HasSubstr("melete data check")));
}

TEST_F(RealProgram, WrongUsageIsExplained) {
  auto words = first_words(folder_ / "run", 2);
  words.insert(words.end(), {"--model.codec.chanels", "8"});
  Ended ended = run(words);
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("model.codec.chanels"), HasSubstr("model.codec.channels")));

  write_text(folder_ / "wrong.toml", "[train]\nstep = 5\n");
  ended = run(
      {"train", "soundstream", "--config", (folder_ / "wrong.toml").string(), "--data", music().string()});
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("wrong.toml:2"), HasSubstr("train.steps")));

  ended = run({"train", "soundstrem", "--data", music().string()});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("soundstream"));

  words = first_words(folder_ / "run", 2);
  words[5] = (folder_ / "nowhere").string();
  ended = run(words);
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("nowhere"), HasSubstr("does not exist")));

  ended = run({"train", "soundstream", "--out", (folder_ / "run").string()});
  EXPECT_EQ(ended.code, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("--data"));
  ended = run(resume_words(folder_ / "run", 2));
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(RealProgram, ARunIsNeverOverwritten) {
  const fs::path out = folder_ / "run";
  run_well(first_words(out, 2));
  const std::string before = read_text(checkpoint(out, 2));
  Ended ended = run(first_words(out, 3));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("--resume"), HasSubstr("--fresh")));
  EXPECT_EQ(read_text(checkpoint(out, 2)), before);

  auto fresh = first_words(out, 3);
  fresh.push_back("--fresh");
  ended = run(fresh);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("run.old-1"));
  EXPECT_EQ(read_text(checkpoint(folder_ / "run.old-1", 2)), before);
  EXPECT_FALSE(fs::exists(checkpoint(out, 2)));
  EXPECT_EQ(steps_logged(out), counted_to(3));

  fresh.push_back("--resume");
  EXPECT_EQ(run(fresh).code, 2) << "both at once";
  // A run that is done stays done.
  ended = run(resume_words(out, 3));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(steps_logged(out), counted_to(3));
}

TEST_F(RealProgram, TwoProcessesDoNotShareARun) {
  const fs::path out = folder_ / "run";
  Process process(MELETE_PROGRAM, first_words(out, 100000), folder_ / "first-log");
  ASSERT_TRUE(wait_until(process, [&] { return !steps_logged(out).empty(); })) << process.wait().output;
  const Ended ended = run(resume_words(out, 4));
  EXPECT_EQ(ended.code, 1) << ended.output;
  process.send(SIGINT);
  EXPECT_EQ(process.wait().code, 130);
}

std::vector<nlohmann::json> rows_of(const fs::path& run, const std::string& kind) {
  std::vector<nlohmann::json> rows;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object() && row.value("kind", "") == kind) rows.push_back(row);
  }
  return rows;
}

// From a finished run to a table, and from the table to a run that says what is unlike it; resumed, it still
// knows.
TEST_F(RealProgram, ARunGoesByTheTableBesideItsRecipe) {
  const fs::path recipe = folder_ / "own.toml", table = folder_ / "own.expect.toml", out = folder_ / "run";
  write_text(recipe, kRecipe);
  reference(23);
  Ended ended = run({"recipe", "measure", (shared_ / "reference-23").string(), "-o", table.string(), "--data",
                     "eleven pieces"});
  ASSERT_EQ(ended.code, 0) << ended.output;
  // The same run once more is as expected; a validation that is far off is said, with what differs.
  std::string text = read_text(table);
  EXPECT_THAT(text,
              AllOf(HasSubstr("task = \"soundstream\""), HasSubstr("main = \"mel_distance\""),
                    HasSubstr("[training.\"generator.loss\"]"), HasSubstr("[validation.mel_distance]")));
  for (const bool off : {false, true}) {
    if (off)
      text = text.substr(0, text.find("[training")) +
             "[validation.mel_distance]\n6 = [0.001, 0.002]\n24 = [0.001, 0.002]\n";
    write_text(table, text);
    fs::remove_all(out);
    auto words = first_words(out, 12);
    words[3] = recipe.string();
    if (off) words.insert(words.end(), {"--generator.clip_norm", "0.25"});
    ended = run(words);
    ASSERT_EQ(ended.code, 0) << ended.output;
    EXPECT_TRUE(fs::exists(out / "expect.toml"));
    EXPECT_THAT(ended.output, AllOf(HasSubstr("on eleven pieces"), HasSubstr("(expected "),
                                    HasSubstr("train.steps 12 instead of 23")));
    auto warnings = rows_of(out, "warning");
    std::erase_if(warnings, [](const nlohmann::json& row) {
      return row.at("text").get<std::string>().find(", expected ") == std::string::npos;
    });
    ASSERT_EQ(warnings.size(), off ? 1u : 0u) << ended.output;
    const auto validations = rows_of(out, "validation");
    ASSERT_EQ(validations.size(), 4u);
    EXPECT_FALSE(validations[0].contains("expected")) << "online";
    ASSERT_TRUE(validations[1].contains("expected"));
    EXPECT_EQ(validations[1]["expected"]["mel_distance"].size(), 2u);
    if (!off) continue;
    EXPECT_THAT(warnings[0].at("text").get<std::string>(),
                AllOf(HasSubstr("validation mel distance"), HasSubstr("at step 6, expected"),
                      HasSubstr("on eleven pieces"), HasSubstr("generator.clip_norm 0.25 instead of 0.5")));
    EXPECT_THAT(ended.output, HasSubstr("warning: validation mel distance"));
    fs::remove(table);  // the run has its own
    ended = run(resume_words(out, 18));
    ASSERT_EQ(ended.code, 0) << ended.output;
    EXPECT_TRUE(rows_of(out, "validation").back().contains("expected"));
  }
}

TEST_F(RealProgram, ADryRunSaysWhatItWouldCostAndWritesNothing) {
  const fs::path out = folder_ / "run";
  auto words = first_words(out, 1200);
  words.push_back("--dry-run");
  const Ended ended = run(words);
  ASSERT_EQ(ended.code, 0) << ended.output;
  // 9 pieces of a second; 1200 steps of 2 x 3 segments of 0.25 s.
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("parameters"), HasSubstr("memory"), HasSubstr("3 checkpoints of"),
                    HasSubstr("1200 steps"), HasSubstr("training: 9 files"),
                    HasSubstr("7.20 k items of 250 ms in all steps: 200 passes"), HasSubstr("not measured")));
  EXPECT_FALSE(fs::exists(out));
  words.push_back("--resume");
  EXPECT_EQ(run(words).code, 2);
}

TEST_F(RealProgram, OneBatchIsACheckThatCanFail) {
  const fs::path out = folder_ / "run";
  auto words = first_words(out, 60);
  words.insert(words.end(), {"--overfit-one-batch", "--generator.optimiser.learning_rate", "3e-3",
                             "--model.loss.mel_weight", "1"});
  Ended ended = run(words);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("mel_distance went from"), HasSubstr("in 60 steps on one batch"),
                                  HasSubstr("it learns")));
  words.insert(words.end(), {"--generator.optimiser.learning_rate", "1e-12"});
  ended = run(words);
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("it learns nothing"));
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace process_test
}  // namespace melete
