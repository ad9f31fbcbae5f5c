// Training AudioLM's stages: they learn what can be learned, and tokens from shards are those made on the
// fly.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/random.h"
#include "data/mapped_batches.h"
#include "data/recordings.h"
#include "io/base/audio_file.h"
#include "nn/draws.h"
#include "roles/tokenizers.h"
#include "systems/audiolm/task.h"
#include "token_batches.h"
#include "train/trainer.h"

namespace melete {

namespace stage_training_test {

namespace fs = std::filesystem;

// Loudness of every hundredth of a second as a token.
class LoudnessTokens : public SemanticTokenizer {
 public:
  explicit LoudnessTokens(std::string identity) : identity_(std::move(identity)) {}
  std::string kind() const override { return "loudness"; }
  int64_t rate_hz() const override { return 8000; }
  int64_t samples_per_token() const override { return 80; }
  int64_t codebook_size() const override { return 10; }
  const std::string& identity() const override { return identity_; }
  int64_t tokens(int64_t samples) const override { return samples / 80; }
  int64_t shortest_samples() const override { return 80; }
  at::Tensor tokenize(const at::Tensor& audio) const override {
    const int64_t n = audio.size(1) / 80;
    const at::Tensor frames = audio.narrow(1, 0, n * 80).view({audio.size(0), n, 80});
    return frames.abs().mean(-1).mul(20).to(at::kLong).clamp(0, 9);
  }

 private:
  std::string identity_;
};

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(fs::temp_directory_path() / fmt::format("melete-{}-{}", name, getpid())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

void write_recordings(const std::string& folder, int count) {
  for (int i = 0; i < count; ++i) {
    Rng rng(static_cast<uint64_t>(i));
    std::vector<float> samples(static_cast<size_t>(4000 + 800 * i));
    for (size_t at = 0; at < samples.size(); ++at)
      samples[at] = static_cast<float>(0.5 * std::sin(static_cast<double>(at) / 900.0) * rng.uniform());
    write_audio(fmt::format("{}/{}.wav", folder, i), samples, 8000);
  }
}

// Scales that run up and wrap around, each from its own first note: after a token the next one is certain.
std::vector<Item> scales(int64_t count, int64_t notes, int64_t length) {
  std::vector<Item> items;
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor semantic = (at::arange(length, at::kLong) + i).remainder(notes);
    items.push_back(token_item(
        std::to_string(i), semantic,
        at::stack({semantic, (semantic * 3).remainder(notes), (semantic + 5).remainder(notes)}, 1)));
  }
  return items;
}

TokenColumns info_of(int64_t notes) {
  return token_columns(notes, notes, 3, 10);
}

StageConfig small_stage() {
  StageConfig config;
  config.transformer.dim = 48;
  config.transformer.depth = 2;
  config.transformer.heads = 4;
  config.transformer.head_dim = 16;
  return config;
}

// Held-out loss after a short training, as a share of the loss of guessing.
double share_of_chance(Task& task, int64_t notes, int64_t length, int64_t steps) {
  TokenBatches training(scales(24, notes, length), info_of(notes), 0, 8, 1);
  TokenBatches held_out(scales(24, notes, length + 3), info_of(notes), 0, 8, 2);
  TrainerConfig config;
  config.steps = steps;
  config.ema.enabled = false;
  Trainer trainer({task, training}, config);
  for (int64_t step = 0; step < steps; ++step) trainer.step();
  const at::NoGradGuard no_grad;
  task.model().eval();
  StepContext context;
  context.training = false;
  return task.validate(held_out.batch(0), context).total.item<double>() /
         std::log(static_cast<double>(notes + 1));
}

StageTaskConfig quick() {
  StageTaskConfig config;
  config.phase.optimiser.learning_rate = 3e-3;
  return config;
}

TEST(StageTraining, SemanticLearnsScales) {
  torch::manual_seed(1);
  SemanticConfig config;
  config.stage = small_stage();
  config.semantic_tokens = 12;
  SemanticTask task(config, quick(), {});
  EXPECT_NEAR(task.chance_levels().at("loss"), std::log(13.0), 1e-9);
  EXPECT_LT(share_of_chance(task, 12, 24, 80), 0.4);
}

TEST(StageTraining, CoarseLearnsCodesFromTokens) {
  torch::manual_seed(1);
  CoarseConfig config;
  config.stage = small_stage();
  config.semantic_tokens = config.codebook_size = 12;
  config.quantizers = 2;
  CoarseTask task(config, quick(), {});
  EXPECT_LT(share_of_chance(task, 12, 12, 80), 0.5);
}

TEST(StageTraining, FineLearnsTheOtherCodes) {
  torch::manual_seed(1);
  FineConfig config;
  config.stage = small_stage();
  config.codebook_size = 12;
  config.coarse_quantizers = 2;
  config.fine_quantizers = 1;
  FineTask task(config, quick(), {});
  EXPECT_LT(share_of_chance(task, 12, 12, 80), 0.5);
}

TEST(StageTraining, ShardsHoldTheTokensThatAreMadeOnTheFly) {
  const TemporaryFolder recordings("recordings"), shards("shards");
  write_recordings(recordings.path(), 5);
  const auto entries = load_entries(recordings.path());
  Tokenizers tokenizers;
  tokenizers.semantic = std::make_shared<LoudnessTokens>("one");
  TokenizeOptions options;
  options.files_per_shard = 2;
  const TokenizeResult made = tokenize_recordings(entries, tokenizers, shards.path(), options);
  EXPECT_EQ(made.files, 5);
  EXPECT_EQ(made.failed, 0);
  ASSERT_TRUE(is_token_folder(shards.path()));

  RecordingsConfig config;
  config.rates_hz = {8000};
  config.multiple_of = {80};
  MappedBatches on_the_fly(std::make_unique<BatchLoader>(std::make_shared<AudioDataset>(entries, config),
                                                         config, 7, BatchShare{3}),
                           [&](Batch& batch) { tokenizers.add_columns(batch); });
  TokenBatches stored(read_token_items(shards.path()), read_token_columns(shards.path()), 0, 3, 7);
  SemanticConfig model_config;
  model_config.stage = small_stage();
  model_config.semantic_tokens = 10;
  SemanticTransformer model(model_config);
  for (int64_t number : {0, 1, 2, 5}) {
    StageInput a, b;
    a.semantic = on_the_fly.batch(number)["semantic"];
    b.semantic = stored.batch(number)["semantic"];
    ASSERT_TRUE(a.semantic.sizes() == b.semantic.sizes() && a.semantic.equal(b.semantic)) << number;
    SeededDraws draws(1), again(1);
    a.draws = &draws;
    b.draws = &again;
    EXPECT_EQ(semantic_losses(model, a, {}).total.item<double>(),
              semantic_losses(model, b, {}).total.item<double>());
  }
}

// Letters as vectors.
class LetterFeatures : public TextEncoder {
 public:
  explicit LetterFeatures(std::string identity) : identity_(std::move(identity)) {}
  std::string kind() const override { return "letters"; }
  int64_t dim() const override { return 3; }
  const std::string& identity() const override { return identity_; }
  TextEmbeddings encode(const std::vector<std::string>& texts) const override {
    size_t longest = 1;
    for (const std::string& text : texts) longest = std::max(longest, text.size());
    const auto count = static_cast<int64_t>(texts.size());
    TextEmbeddings made;
    made.embeddings = at::zeros({count, static_cast<int64_t>(longest), 3});
    made.mask = at::zeros({count, static_cast<int64_t>(longest)}, at::kBool);
    for (int64_t row = 0; row < count; ++row)
      for (size_t i = 0; i < texts[static_cast<size_t>(row)].size(); ++i) {
        made.embeddings[row][static_cast<int64_t>(i)].fill_(texts[static_cast<size_t>(row)][i] / 128.0);
        made.mask[row][static_cast<int64_t>(i)].fill_(true);
      }
    return made;
  }

 private:
  std::string identity_;
};

TEST(StageTraining, ShardsHoldTheFeaturesOfTexts) {
  const TemporaryFolder recordings("text-recordings"), shards("text-shards"), silent("silent-shards");
  write_recordings(recordings.path(), 4);
  Tokenizers tokenizers;
  tokenizers.semantic = std::make_shared<LoudnessTokens>("one");
  tokenizers.text = std::make_shared<LetterFeatures>("letters");
  auto entries = load_entries(recordings.path());
  EXPECT_THROW(tokenize_recordings(entries, tokenizers, silent.path(), {}), Error) << "none has a text";
  EXPECT_FALSE(is_token_folder(silent.path()));
  for (size_t i = 0; i < 3; ++i) entries[i].text = std::string(2 + i, static_cast<char>('a' + i));
  ASSERT_EQ(tokenize_recordings(entries, tokenizers, shards.path(), {}).files, 4);

  const TokenColumns columns = read_token_columns(shards.path());
  const TokenColumn& features = columns.require_column("text_features", shards.path());
  EXPECT_EQ(features.identity, "letters");
  EXPECT_EQ(features.width, 3);
  EXPECT_EQ(features.values, 0);
  // Segments cut the sound, and leave the text whole; what was stored is what is made on the way.
  TokenBatches stored(read_token_items(shards.path()), columns, 0.1, 4, 7);
  Batch batch = stored.batch(0);
  EXPECT_EQ(batch["semantic"].size(1), 10);
  EXPECT_TRUE(batch["text_features"].equal(tokenizers.text->encode(batch.words("text")).embeddings));
  tokenizers.text = std::make_shared<LetterFeatures>("others");
  EXPECT_THROW(tokenize_recordings(entries, tokenizers, shards.path(), {}), Error);
}

TEST(StageTraining, TokenizingGoesOnWhereItStoppedAndRefusesOtherTokenizers) {
  const TemporaryFolder recordings("again-recordings"), shards("again-shards");
  write_recordings(recordings.path(), 5);
  const auto entries = load_entries(recordings.path());
  Tokenizers tokenizers;
  tokenizers.semantic = std::make_shared<LoudnessTokens>("one");
  TokenizeOptions options;
  options.files_per_shard = 2;
  tokenize_recordings(entries, tokenizers, shards.path(), options);
  fs::remove(shards / "shard_00001.safetensors");
  const TokenizeResult again = tokenize_recordings(entries, tokenizers, shards.path(), options);
  EXPECT_EQ(again.already, 3);
  EXPECT_EQ(again.files, 2);

  tokenizers.semantic = std::make_shared<LoudnessTokens>("another");
  EXPECT_THROW(tokenize_recordings(entries, tokenizers, shards.path(), options), Error);
}

TEST(StageTraining, RanksShareTheTokensOfOneBatch) {
  const int64_t notes = 12;
  TokenBatches whole(scales(9, notes, 6), info_of(notes), 0, 5, 3);
  TokenBatches first(scales(9, notes, 6), info_of(notes), 0, 5, 3, 0, 2, true);
  TokenBatches second(scales(9, notes, 6), info_of(notes), 0, 5, 3, 1, 2, true);
  EXPECT_EQ(first.items_per_batch(), 5);
  EXPECT_DOUBLE_EQ(first.weight() + second.weight(), 2);
  for (int64_t number = 0; number < 4; ++number)
    EXPECT_TRUE(at::cat({first.batch(number)["semantic"], second.batch(number)["semantic"]})
                    .equal(whole.batch(number)["semantic"]));
}

}  // namespace stage_training_test
}  // namespace melete
