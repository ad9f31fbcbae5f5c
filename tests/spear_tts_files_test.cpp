// SPEAR-TTS's files: pairs that a model has read, and spear-tts-pytorch's packages in and out again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "data/mixed_dataset.h"
#include "data/token_folder.h"
#include "foreign_files.h"
#include "io/pickled_tensors.h"
#include "real_process.h"
#include "run/run_folder.h"
#include "systems/foreign.h"
#include "systems/spear_tts/pairs.h"
#include "systems/spear_tts/system.h"

namespace melete {
namespace spear_tts_files_test {

namespace fs = std::filesystem;
using namespace spear_tts;
using testing::content;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(SpearPairs, RepetitionIsFound) {
  EXPECT_EQ(repeated_share("the sailor crossed the river"), 0);
  EXPECT_EQ(repeated_share("no no no no "), 1);
  EXPECT_EQ(repeated_share("aaa"), 1);
  EXPECT_EQ(repeated_share("hello hello"), 0);  // twice may be meant
  EXPECT_NEAR(repeated_share("well, hahahaha"), 8.0 / 14, 1e-9);
  EXPECT_EQ(repeated_share(""), 0);
}

Reader small_reader() {
  torch::manual_seed(3);
  TextToSemanticConfig config;
  config.speech.tokens = 12;
  config.text.tokens = 258;
  config.dim = 16;
  config.encoder_layers = config.decoder_layers = 1;
  config.heads = 2;
  config.head_dim = 8;
  Reader reader;
  reader.model = TextToSemantic(config);
  reader.model->eval();
  reader.text = std::make_shared<ByteTokenizer>();
  reader.semantic_identity = "twelve";
  return reader;
}

TokenColumns twelve() {
  TokenColumns columns;
  columns.list.push_back({"semantic", "twelve", 12, 0, 25, 16000});
  return columns;
}

void write_items(const std::string& folder, const std::vector<std::map<std::string, std::string>>& words) {
  std::vector<std::string> names;
  std::vector<Item> items;
  for (size_t i = 0; i < words.size(); ++i) {
    names.push_back(fmt::format("{}", i));
    Item& item = items.emplace_back();
    item.add("semantic", at::arange(5 + static_cast<int64_t>(i), at::kLong).remainder(12));
    item.words = words[i];
    item.words["path"] = names.back();
  }
  TokenFolderWriter(folder, twelve(), names, static_cast<int64_t>(items.size())).write(0, items);
}

TEST(SpearPairs, ReadingGoesOnWhereItStopped) {
  TemporaryFolder folder;
  std::vector<std::map<std::string, std::string>> words(7);
  words[2]["text"] = "known";
  write_items(folder / "tokens", words);
  Reader reader = small_reader();
  ReadingOptions options;
  options.items_per_shard = 2;
  options.beams = 2;
  options.longest_ratio = 0.1;
  const std::string whole = folder.path() + "/whole", parts = folder.path() + "/parts";
  ReadingResult result = read_speech(reader, folder / "tokens", whole, options);
  EXPECT_EQ(result.items, 6);
  EXPECT_EQ(result.labelled, 1);
  result = read_speech(reader, folder / "tokens", whole, options);
  EXPECT_EQ(result.items, 0);
  EXPECT_EQ(result.already, 6);

  // Two processes, of which one is killed after a shard: the rest is done later.
  options.rank_count = 2;
  for (const int64_t rank : {1, 0}) {
    options.rank = rank;
    read_speech(reader, folder / "tokens", parts, options);
  }
  fs::remove(parts + "/readings/shard_00000.safetensors");
  options.rank = 0;
  options.rank_count = 1;
  result = read_speech(reader, folder / "tokens", parts, options);
  EXPECT_EQ(result.items, 2);
  EXPECT_EQ(result.already, 4);
  for (int shard = 0; shard < 3; ++shard) {
    const std::string name = fmt::format("/readings/shard_0000{}.safetensors", shard);
    EXPECT_EQ(testing::read_bytes(whole + name), testing::read_bytes(parts + name));
  }
  for (const Item& item : read_token_items(parts + "/readings")) {
    EXPECT_LE(std::stod(item.words.at("score")), 0);
    EXPECT_GE(std::stod(item.words.at("length_ratio")), 0);
  }

  torch::manual_seed(4);
  Reader other = small_reader();
  {
    const at::NoGradGuard no_grad;
    other.model->text->start.add_(1);
  }
  try {
    read_speech(other, folder / "tokens", whole, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("was begun with another model"));
  }
}

TEST(SpearPairs, FilterSaysWhatItDropsAndWhy) {
  TemporaryFolder folder;
  const auto reading = [](const std::string& text, double score, double ratio, const char* ended = "yes") {
    return std::map<std::string, std::string>{{"text", text},
                                              {"score", fmt::format("{}", score)},
                                              {"length_ratio", fmt::format("{}", ratio)},
                                              {"ended", ended}};
  };
  write_items(folder / "pairs/readings",
              {reading("good one", -0.1, 1), reading("good two", -0.4, 1.2), reading("another", -0.2, 0.9),
               reading("unsure", -0.9, 1), reading("no no no no", -0.1, 1), reading("far too long", -0.1, 3),
               reading("x", -0.1, 0.1), reading(" ", -0.1, 1), reading("on and on", -0.1, 1, "no")});
  const std::string pairs = folder.path() + "/pairs";
  FilterReport report = filter_pairs(pairs, {});
  EXPECT_EQ(report.all, 9);
  EXPECT_EQ(report.kept, 3);
  EXPECT_EQ(report.median_ratio, 1);
  for (const auto& [why, count] : report.dropped) EXPECT_EQ(count, 1) << why;
  EXPECT_EQ(read_token_items(pairs).size(), 3u);

  // Other thresholds filter anew.
  PairFilter filter;
  filter.least_score = -1;
  report = filter_pairs(pairs, filter);
  EXPECT_EQ(report.kept, 4);
  EXPECT_EQ(read_token_items(pairs).size(), 4u);
}

TEST(SpearPairs, RowsOfUpstreamGoThereAndBack) {
  TemporaryFolder folder;
  const std::string text = "gar\u00e7on";
  write_items(folder / "pairs", {{{"text", text}}, {{"text", "two"}}, {{"text", ""}}});
  Reader reader = small_reader();
  EXPECT_EQ(write_rows(reader, folder / "pairs", folder / "rows", {}), 2);
  const TensorMap first = read_torch_tensors(folder / "rows/0.pt");
  EXPECT_EQ(read_rows(reader, folder / "rows", folder / "back", {}), 2);
  const std::vector<Item> back = read_token_items(folder / "back");
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].words.at("text"), text);
  EXPECT_TRUE(back[0].find("semantic")->values.to(at::kLong).equal(at::arange(5)));
}

class Numbers : public Dataset {
 public:
  Numbers(int64_t from, int64_t count) : from_(from), count_(count) {}
  int64_t size() const override { return count_; }
  Item draw(uint64_t, uint64_t, int64_t index) override {
    Item item;
    item.add("number", at::scalar_tensor(from_ + index, at::kLong));
    return item;
  }
  double length(int64_t index) const override { return static_cast<double>(from_ + index); }

 private:
  int64_t from_, count_;
};

TEST(MixedDataset, EveryPartHasItsShareAndEveryItemItsTurn) {
  MixedDataset mixed({{std::make_shared<Numbers>(0, 10), 0.25}, {std::make_shared<Numbers>(100, 90), 0.75}});
  EXPECT_EQ(mixed.size(), 120);
  EXPECT_EQ(mixed.places(0), 30);
  std::map<int64_t, int> seen;
  for (int64_t i = 0; i < mixed.size(); ++i) {
    const int64_t number = mixed.draw(0, 0, i).find("number")->values.item<int64_t>();
    EXPECT_EQ(mixed.length(i), static_cast<double>(number));
    ++seen[number];
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(seen[3], 3);
  EXPECT_EQ(seen[150], 1);
  MixedDataset only({{std::make_shared<Numbers>(0, 10), 0}, {std::make_shared<Numbers>(100, 90), 1}});
  EXPECT_EQ(only.size(), 90);
  EXPECT_THROW(MixedDataset({{std::make_shared<Numbers>(0, 10), 0}}), Error);
}

const std::pair<std::string, std::string> kPackages[] = {{"speech.speech.2", kPretrainTask},
                                                         {"semantic.text.2", kBackTranslateTask},
                                                         {"text.semantic.2", kTextToSemanticTask}};

std::string package_named(const std::string& name) {
  return std::string(MELETE_SOURCE_DIR) + "/tests/golden/spear-tts/checkpoints/" + name + ".pt";
}

// Weights do not tell after which layer the early exit is.
nlohmann::ordered_json arguments_of(const std::string& task) {
  if (task == kTextToSemanticTask) return {{"target_early_exit_layer", 1}};
  return nlohmann::ordered_json::object();
}

TEST(SpearImport, PackagesComeOutAsTheyWentIn) {
  TemporaryFolder folder;
  for (const auto& [name, task] : kPackages) {
    const ImportedCheckpoint imported =
        import_foreign("spear-tts-pytorch", package_named(name), arguments_of(task));
    EXPECT_EQ(imported.kind, task);
    EXPECT_TRUE(imported.complete);
    EXPECT_EQ(imported.checkpoint.step(), 3);
    save_checkpoint(folder / "x.safetensors", imported.checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
    EXPECT_EQ(content(package_named(name)), content(folder / "y.pt")) << name;
  }
}

TEST(SpearImport, ShapesAndOptimisersTellTheSettings) {
  TemporaryFolder folder;
  for (const auto& [name, task] : kPackages) {
    // Without its name, what its optimiser counts tells which trainer it was.
    fs::copy_file(package_named(name), folder / (task + ".pt"));
    const ImportedCheckpoint imported =
        import_foreign("spear-tts-pytorch", folder / (task + ".pt"), arguments_of(task));
    EXPECT_EQ(imported.kind, task);
    const auto& config = imported.checkpoint.meta.at("config");
    EXPECT_EQ(config.at("model").at("dim"), 24);
    EXPECT_EQ(config.at("model").at("encoder_layers"), 3);
    EXPECT_EQ(config.at("model").at("decoder_layers"), 2);
    EXPECT_EQ(config.at("model").at("heads"), 2);
    EXPECT_EQ(config.at("model").at("head_dim"), 12);
    EXPECT_EQ(config.at("model").at("speech").at("tokens"), 24);
    EXPECT_EQ(config.at("model").at("text").at("tokens"), 20);
    EXPECT_EQ(config.at("task").at("optimiser").at("learning_rate"), 0.003);
    EXPECT_EQ(config.at("task").at("schedule").at("warmup_steps"), 2);
    EXPECT_EQ(config.at("task").at("schedule").at("decay_steps"), 3);
    if (task == kTextToSemanticTask) {
      EXPECT_EQ(config.at("task").at("frozen_encoder_layers"), 2);
    }
  }
  const auto expect_error = [](const nlohmann::ordered_json& arguments, const char* says) {
    try {
      import_foreign("spear-tts-pytorch", package_named("text.semantic.2"), arguments);
      FAIL() << says;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  expect_error({{"heads", 4}, {"target_early_exit_layer", 1}}, "the weights say 2");
  expect_error({}, "give target_early_exit_layer=N");
}

// A checkpoint of our own becomes a package like theirs: the same keys with the same shapes.
TEST(SpearImport, OurOwnRunsBecomePackagesLikeTheirs) {
  TemporaryFolder folder;
  for (const auto& [name, task] : kPackages) {
    ImportedCheckpoint imported =
        import_foreign("spear-tts-pytorch", package_named(name), arguments_of(task));
    imported.checkpoint.meta.erase("foreign");
    save_checkpoint(folder / "x.safetensors", imported.checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
    const TensorMap theirs = read_torch_tensors(package_named(name)),
                    ours = read_torch_tensors(folder / "y.pt");
    for (const auto& [key, tensor] : theirs) {
      const auto found = ours.find(key);
      // Theirs trains the rotation in two of the trainers; ours never does.
      if (found == ours.end()) {
        EXPECT_THAT(key, ::testing::StartsWith("optim.state."));
        EXPECT_TRUE(tensor.numel() == 6 || tensor.numel() == 1) << key;
        continue;
      }
      EXPECT_TRUE(found->second.equal(tensor)) << key;
    }
    for (const auto& [key, tensor] : ours) EXPECT_TRUE(theirs.count(key)) << key;
  }
}

// Tokens and texts that the packages' models know.
std::string write_known(const TemporaryFolder& folder) {
  const std::string path = folder.path() + "/tokens";
  TokenColumns columns;
  columns.list.push_back({"semantic", "twenty-four", 24, 0, 25, 16000});
  std::vector<std::string> names;
  std::vector<Item> items;
  for (int64_t i = 0; i < 6; ++i) {
    names.push_back(fmt::format("{}", i));
    Item& item = items.emplace_back();
    item.add("semantic", at::arange(5 + i, at::kLong).mul(i + 1).remainder(24));
    item.words = {{"path", names.back()}, {"text", i % 2 ? "aba" : "bb"}};
  }
  TokenFolderWriter(path, columns, names, 6).write(0, items);
  return path;
}

// A SentencePiece model of at most 20 pieces, as many as the packages know.
std::string write_pieces(const TemporaryFolder& folder) {
  const std::string lines = folder.path() + "/lines.txt", path = folder.path() + "/text.model";
  std::ofstream out(lines);
  for (int i = 0; i < 40; ++i) out << (i % 2 ? "aba\n" : "bb ab\n");
  out.close();
  EXPECT_EQ(run_program({"data", "text-tokenizer", lines, "--vocab", "8", "-o", path}), 0);
  return path;
}

TEST(SpearImport, TrainingGoesOnAndComesBack) {
  TemporaryFolder folder;
  const std::string tokens = write_known(folder), pieces = write_pieces(folder);
  for (const auto& [name, task] : kPackages) {
    const std::string run = folder.path() + "/" + task;
    Words words = {"import", "spear-tts-pytorch", package_named(name), "-o", run};
    if (task == kTextToSemanticTask) words.insert(words.end(), {"--arguments", "target_early_exit_layer=1"});
    ASSERT_EQ(run_program(words), 0);
    ASSERT_EQ(run_program({"train",
                           task,
                           "--out",
                           run,
                           "--resume",
                           "--data",
                           tokens,
                           "--steps",
                           "5",
                           "--batch_size",
                           "2",
                           "--data.segment_seconds",
                           "0",
                           "--data.valid_fraction",
                           "0",
                           "--threads",
                           "1",
                           "--text.tokenizer",
                           "sentencepiece",
                           "--text.sentencepiece",
                           pieces}),
              0);
    const Checkpoint trained = latest_usable(run, [](const std::string&) {})->checkpoint;
    EXPECT_EQ(trained.step(), 5);
    const Checkpoint before =
        import_foreign("spear-tts-pytorch", package_named(name), arguments_of(task)).checkpoint;
    bool moved = false;
    for (const auto& [key, tensor] : before.tensors)
      moved = moved || (key.starts_with("model.") && !tensor.equal(trained.tensors.at(key)));
    EXPECT_TRUE(moved) << task;

    export_checkpoint(run, folder / (name + ".back.pt"), {ExportFor::training});
    const Checkpoint back =
        import_foreign("spear-tts-pytorch", folder / (name + ".back.pt"), arguments_of(task)).checkpoint;
    EXPECT_EQ(back.meta.at("config").at("model"), before.meta.at("config").at("model")) << task;
    int64_t compared = 0;
    for (const auto& [key, tensor] : trained.tensors)
      if (key.starts_with("model.") || key.starts_with("optimiser.")) {
        ASSERT_TRUE(back.tensors.count(key)) << key;
        EXPECT_TRUE(tensor.equal(back.tensors.at(key))) << key;
        ++compared;
      }
    EXPECT_GT(compared, 50);
  }
}

TEST(SpearImport, PythonReadsTheSame) {
  if (!testing::python_has_torch())
    GTEST_SKIP() << "python3-torch is not installed: torch.load was not tried";
  TemporaryFolder folder;
  const std::string script = R"(
first, second = (torch.load(p) for p in sys.argv[1:3])
count = same(first, second, '')
assert count > 60, count
print(count, 'tensors are the same')
)";
  for (const auto& [name, task] : kPackages) {
    save_checkpoint(folder / "x.safetensors",
                    import_foreign("spear-tts-pytorch", package_named(name), arguments_of(task)).checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
    EXPECT_TRUE(testing::run_python(folder.path(), script, {package_named(name), folder / "y.pt"})) << name;
  }
}

}  // namespace spear_tts_files_test
}  // namespace melete
