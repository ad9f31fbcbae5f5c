// Training MuLaN and MusicLM's stages: they learn a batch, a checkpoint alone makes the embedding, a batch of
// one is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <set>

#include "core/base/error.h"
#include "nn/draws.h"
#include "run/checkpoint.h"
#include "run/reporter.h"
#include "run/run_folder.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task.h"
#include "train/trainer.h"

namespace melete {

namespace musiclm_training_test {

// The same batch for ever.
class OneBatch : public BatchSource {
 public:
  explicit OneBatch(Batch batch) : batch_(std::move(batch)) {}
  Batch batch(int64_t number) override {
    Batch copy = batch_;
    copy.number = number;
    return copy;
  }

 private:
  Batch batch_;
};

// A batch is a function of its number.
class OtherBatches : public BatchSource {
 public:
  Batch batch(int64_t number) override {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(number));
    Batch batch;
    batch.number = number;
    batch.set("wave", 0.1 * at::randn({4, 4000}, generator));
    batch.set(Batch::length_column("wave"), at::tensor({4000, 3000, 4000, 3500}, at::kLong));
    batch.set_words("text", {"one", "two pieces", "three", fmt::format("number {}", number)});
    return batch;
  }
};

musiclm::Mulan small_model() {
  torch::manual_seed(4);
  musiclm::MulanConfig config;
  config.dim = 12;
  for (musiclm::TowerTransformerConfig* tower : {&config.audio.transformer, &config.text.transformer}) {
    tower->dim = 32;
    tower->depth = 3;
    tower->heads = 2;
    tower->head_dim = 32;  // which the attention kernel takes
  }
  config.audio.spectrogram = {128, 128, 64};
  config.text.vocabulary = 50;
  config.text.window = 16;
  config.contrast_layers = 2;
  return musiclm::Mulan(config);
}

void make_small(Schema& s) {
  for (const std::string tower : {"model.audio.transformer.", "model.text.transformer."}) {
    s.set(tower + "dim", "32");
    s.set(tower + "depth", "2");
    s.set(tower + "heads", "1");
    s.set(tower + "head_dim", "32");
  }
  s.set("model.dim", "16");
  s.set("model.text.window", "64");
  s.set("model.audio.spectrogram.n_fft", "128");
  s.set("model.audio.spectrogram.window", "128");
  s.set("model.audio.spectrogram.hop", "64");
  // What is learned is one batch by heart.
  s.set("model.audio.augment.stretch", "1");
  s.set("model.audio.augment.frequency_mask", "0");
  s.set("model.audio.augment.time_mask", "0");
  s.set("model.audio.patch_dropout", "0");
  s.set("data.segment_seconds", "0.25");
  s.set("task.optimiser.learning_rate", "3e-3");
}

struct Learned {
  double before = 0, after = 0;
  Checkpoint checkpoint;
};

double loss_of(Task& task, const Batch& batch) {
  const at::NoGradGuard no_grad;
  task.model().eval();
  StepContext context;
  context.training = false;
  return task.validate(batch, context).total.item<double>();
}

Learned learn(Recipe& recipe, Task& task, const Batch& batch, int64_t steps) {
  OneBatch source(batch);
  TrainerConfig config = recipe.train;
  config.steps = steps;
  TrainerParts parts{task, source};
  parts.config = recipe.schema().json();
  Trainer trainer(std::move(parts), config);
  Learned run;
  run.before = loss_of(task, batch);
  for (int64_t step = 0; step < steps; ++step) trainer.step();
  run.after = loss_of(task, batch);
  run.checkpoint = trainer.checkpoint();
  return run;
}

TEST(MusicLmTraining, MulanLearnsABatchAndItsCheckpointIsAnEmbedding) {
  torch::manual_seed(1);
  const auto recipe = make_mulan_recipe();
  Schema settings = recipe->schema();
  make_small(settings);
  recipe->settle_on_paper();
  const Batch batch = recipe->example(8);
  const auto task = recipe->make_task();
  const Learned run = learn(*recipe, *task, batch, 80);
  EXPECT_LT(run.after, 0.9 * run.before);
  EXPECT_NEAR(task->chance_levels().at("loss"), std::log(7.0),
              1e-9);  // decoupled: the pair itself is not counted
  EXPECT_NEAR(task->chance_levels().at("text_to_audio_recall_1"), 1.0 / 8, 1e-9);

  const auto embedding = open_mulan(FoundCheckpoint{"test", run.checkpoint});
  EXPECT_EQ(embedding->dim(), 16);
  const at::Tensor audio = embedding->embed_audio(batch["wave"], embedding->rate_hz());
  const at::Tensor text = embedding->embed_text(batch.words("text"));
  const at::Tensor scores = at::mm(audio, text.t());
  EXPECT_GT(scores.diagonal().mean().item<double>(), scores.mean().item<double>());
}

// Stretched, masked, with patches left out, rows of unequal length: chunks have the gradients of the whole.
TEST(MusicLmTraining, ChunksHaveTheGradientsOfTheWholeBatch) {
  musiclm::Mulan model = small_model();
  const musiclm::AudioInput audio{0.1 * at::randn({7, 4000}),
                                  at::tensor({4000, 3100, 4000, 2500, 3999, 4000, 3500}, at::kLong)};
  const musiclm::TextInput text{at::randint(2, 50, {7, 9}), at::rand({7, 9}) > 0.2};
  std::vector<at::Tensor> whole;
  double loss = 0;
  for (const int64_t chunk : {0, 3}) {
    model->zero_grad();
    SeededDraws draws(3);
    const at::Tensor total = model->losses(model->embed_pairs(audio, text, &draws, chunk)).total;
    total.backward();
    if (chunk == 0) loss = total.item<double>();
    EXPECT_NEAR(total.item<double>(), loss, 1e-5);
    size_t number = 0;
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      if (chunk == 0) whole.push_back(item.value().grad().clone());
      const at::Tensor& want = whole[number++];
      // Softmax ignores what all scores of a head share: the gradient is nothing but rounding.
      if (item.key() == "audio.position_bias.layers.2.bias") continue;
      const double largest = std::max(want.abs().max().item<double>(), 1e-4);
      EXPECT_LT((item.value().grad() - want).abs().max().item<double>(), 1e-4 * largest) << item.key();
    }
  }
}

// What fills up a batch changes nothing: sound, text, and what layers give.
TEST(MusicLmTraining, PaddedRowsAreWhatTheyAreAlone) {
  const at::NoGradGuard no_grad;
  musiclm::Mulan model = small_model();
  model->eval();
  const std::vector<int64_t> lengths = {4000, 2500, 3111};
  const at::Tensor audio = 0.1 * at::randn({3, 4000});  // noise beyond the ends, too
  const musiclm::Latents together = model->embed_audio({audio, at::tensor(lengths, at::kLong)});
  for (int64_t row = 0; row < 3; ++row) {
    const musiclm::Latents alone =
        model->embed_audio({audio.narrow(0, row, 1).narrow(1, 0, lengths[static_cast<size_t>(row)]), {}});
    EXPECT_LT((together.values[row] - alone.values[0]).abs().max().item<double>(), 1e-5) << row;
    EXPECT_LT((together.layers.select(1, row) - alone.layers.select(1, 0)).abs().max().item<double>(), 1e-5);
  }
  const at::Tensor ids = at::randint(2, 50, {2, 9});
  at::Tensor mask = at::ones({2, 9}, at::kBool);
  mask[1].narrow(0, 5, 4).fill_(false);
  const at::Tensor texts = model->embed_text({ids, mask}).values;
  EXPECT_LT((texts[1] - model->embed_text({ids.narrow(0, 1, 1).narrow(1, 0, 5), {}}).values[0])
                .abs()
                .max()
                .item<double>(),
            1e-5);
}

// Every step has another batch and other draws; the second half comes from a checkpoint.
class MulanResume : public ::testing::TestWithParam<const char*> {};

TEST_P(MulanResume, AResumedRunHasTheSameBits) {
  const auto run = [](int64_t steps, const Checkpoint* from) {
    torch::manual_seed(1);
    const auto recipe = make_mulan_recipe();
    Schema settings = recipe->schema();
    make_small(settings);
    settings.set("model.audio.patch_dropout", "0.25");
    settings.set("model.audio.augment.stretch", "0.8");
    settings.set("model.audio.augment.time_mask", "8");
    settings.set("task.templates", "[\"{}\", \"the sound of {}\"]");
    settings.set("task.optimiser.kind", GetParam());
    recipe->settle_on_paper();
    const auto task = recipe->make_task();
    OtherBatches source;
    TrainerConfig config = recipe->train;
    config.steps = 100;
    Trainer trainer({*task, source}, config);
    if (from) trainer.load(*from);
    while (trainer.steps_done() < steps) trainer.step();
    return trainer.checkpoint();
  };
  const Checkpoint whole = run(6, nullptr), half = run(3, nullptr), resumed = run(6, &half);
  ASSERT_GT(whole.tensors.size(), 50u);
  for (const auto& [name, tensor] : whole.tensors)
    EXPECT_TRUE(at::equal(tensor, resumed.tensors.at(name))) << name;
  EXPECT_FALSE(
      at::equal(whole.tensors.at("model.audio_head.weight"), half.tensors.at("model.audio_head.weight")));
}

INSTANTIATE_TEST_SUITE_P(Optimisers, MulanResume, ::testing::Values("adam", "lion"),
                         [](const auto& made) { return std::string(made.param); });

TEST(MusicLmTraining, ABatchOfOneIsRefused) {
  const auto recipe = make_mulan_recipe();
  Schema settings = recipe->schema();
  make_small(settings);
  settings.set("batch_size", "1");
  EXPECT_THROW(recipe->settle_on_paper(), Error);
}

class Warnings : public Reporter {
 public:
  void warning(const std::string& text) override { all.push_back(text); }
  std::vector<std::string> all;
};

// Said at a validation, whether samples are written or not.
TEST(MusicLmTraining, CollapsedTowersRaiseTheAlarm) {
  for (const bool collapsed : {false, true}) {
    torch::manual_seed(1);
    const auto recipe = make_mulan_recipe();
    Schema settings = recipe->schema();
    make_small(settings);
    settings.set("task.optimiser.learning_rate", "1e-6");
    recipe->settle_on_paper();
    const auto task = recipe->make_task();
    if (collapsed) {
      const at::NoGradGuard no_grad;
      musiclm::Mulan mulan = dynamic_cast<musiclm::MulanTask&>(*task).mulan();
      for (torch::nn::Linear& head : {std::ref(mulan->audio_head), std::ref(mulan->text_head)}) {
        head->weight.zero_();
        head->bias.fill_(1);
      }
    }
    OneBatch source(recipe->example(6));
    Warnings heard;
    TrainerParts parts{*task, source};
    parts.validation = &source;
    parts.reporter = &heard;
    TrainerConfig config = recipe->train;
    config.steps = 2;
    config.validate_every = 1;
    config.validate_batches = 1;
    Trainer trainer(std::move(parts), config);
    std::atomic<bool> stop{false};
    trainer.run(stop);
    EXPECT_THAT(heard.all, ::testing::SizeIs(collapsed ? 1 : 0));
    if (!collapsed) continue;
    EXPECT_THAT(heard.all.front(), ::testing::HasSubstr("collapsed at step 1"));
  }
}

// Writes down what it was given to read.
class Listening : public TextTokenizer {
 public:
  std::string kind() const override { return bytes_.kind(); }
  int64_t vocabulary() const override { return bytes_.vocabulary(); }
  const std::string& identity() const override { return bytes_.identity(); }
  std::vector<int64_t> pieces(std::string_view text) const override {
    read.emplace_back(text);
    return bytes_.pieces(text);
  }
  std::string text(const std::vector<int64_t>& ids) const override { return bytes_.text(ids); }

  mutable std::vector<std::string> read;

 private:
  ByteTokenizer bytes_;
};

struct TaggedTask {
  std::shared_ptr<Listening> reader = std::make_shared<Listening>();
  std::unique_ptr<musiclm::MulanTask> task;

  TaggedTask() {
    torch::manual_seed(2);
    musiclm::MulanConfig config = small_model()->config();
    config.text.vocabulary = 258;
    config.text.window = 64;
    musiclm::MulanTaskConfig how;
    how.templates.captions = {"{}"};
    how.templates.tags = {"the sound of {}", "a {}"};
    task = std::make_unique<musiclm::MulanTask>(config, how, reader, 3, nlohmann::ordered_json());
  }
  std::vector<std::string> read_in(bool training, uint64_t seed = 0) {
    Batch batch;
    batch.set("wave", 0.1 * at::randn({3, 4000}));
    batch.set(Batch::length_column("wave"), at::full({3}, 4000, at::kLong));
    batch.set_words("text", {"bells in a hall", "", "an organ"});
    batch.set_words("tags", {"", "bell\nslow", "organ"});
    SeededDraws draws(seed);
    StepContext context;
    context.training = training;
    context.draws = &draws;
    reader->read.clear();
    if (training)
      task->phases().front().loss(batch, context);
    else
      task->validate(batch, context);
    return reader->read;
  }
};

TEST(MusicLmTraining, TagsAreASecondKindOfLabel) {
  using ::testing::ElementsAre;
  using ::testing::IsSupersetOf;
  TaggedTask tagged;
  // What stands for an item: its caption where it has one, else all of its tags.
  EXPECT_THAT(tagged.read_in(false), ElementsAre("bells in a hall", "the sound of bell, slow", "an organ"));
  std::set<std::string> first, second, third;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto read = tagged.read_in(true, seed);
    ASSERT_EQ(read.size(), 3u);
    first.insert(read[0]);
    second.insert(read[1]);
    third.insert(read[2]);
  }
  EXPECT_THAT(first, ElementsAre("bells in a hall"));
  EXPECT_EQ(second, (std::set<std::string>{"the sound of bell, slow", "the sound of bell",
                                           "the sound of slow", "a bell, slow", "a bell", "a slow"}));
  EXPECT_EQ(third, (std::set<std::string>{"an organ", "the sound of organ", "a organ"}));
}

TEST(MusicLmTraining, ATextWithoutWordsIsAnErrorThatNamesItsItem) {
  const ByteTokenizer bytes;
  const auto error = [&](const std::vector<std::string>& names) {
    try {
      musiclm::tokenize(bytes, {"one", ""}, 8, names);
    } catch (const Error& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  EXPECT_THAT(error({"a.wav", "music/b.wav"}), ::testing::HasSubstr("the text of music/b.wav has no words"));
  EXPECT_THAT(error({}), ::testing::HasSubstr("item 2 of 2"));
  // In training it is the batch that knows the names.
  TaggedTask tagged;
  Batch batch;
  batch.set("wave", at::zeros({2, 4000}));
  batch.set(Batch::length_column("wave"), at::full({2}, 4000, at::kLong));
  batch.set_words("text", {"one", ""});
  batch.set_words("path", {"a.wav", "music/b.wav"});
  try {
    tagged.task->phases().front().loss(batch, StepContext());
    ADD_FAILURE() << "nothing was said of the empty text";
  } catch (const Error& failure) {
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("music/b.wav"));
  }
}

TEST(MusicLmTraining, LongTextsAreCutAndCounted) {
  const musiclm::TokenizedTexts made = musiclm::tokenize(ByteTokenizer(), {"abcdefgh", "abc", "abcde"}, 4);
  EXPECT_EQ(made.cut, 2);
  EXPECT_EQ(made.input.ids.size(1), 4);
  EXPECT_TRUE(at::equal(made.input.ids[0], made.input.ids[2])) << "what is cut is the end";
  EXPECT_TRUE(at::equal(made.input.mask.sum(1), at::tensor({4, 3, 4}, at::kLong)));
}

TEST(MusicLmTraining, GuessingIsAtChance) {
  EXPECT_NEAR(musiclm::chance_of_contrast("softmax", 16), std::log(16.0), 1e-12);
  EXPECT_NEAR(musiclm::chance_of_contrast("decoupled", 16), std::log(15.0), 1e-12);
  EXPECT_NEAR(musiclm::chance_of_contrast("sigmoid", 2), 2 * std::log(2.0), 1e-12);
}

TEST(MusicLmTraining, StagesLearnABatchWithTheirConditions) {
  for (const std::string stage : {"semantic", "coarse", "fine"}) {
    torch::manual_seed(1);
    const auto recipe = make_music_stage_recipe(stage);
    Schema settings = recipe->schema();
    settings.set("model.dim", "32");
    settings.set("model.depth", "2");
    settings.set("model.heads", "1");
    settings.set("model.head_dim", "32");
    settings.set("model.text_dim", "24");
    settings.set("condition.quantizers", "2");
    settings.set("condition.codebook_size", "4");
    settings.set("data.segment_seconds", "0.2");
    settings.set("task.optimiser.learning_rate", "3e-3");
    recipe->settle_on_paper();
    const auto task = recipe->make_task();
    const Learned run = learn(*recipe, *task, recipe->example(4), 40);
    EXPECT_LT(run.after, run.before) << stage;
    EXPECT_EQ(task->name(), music_stage_task(stage));
  }
}

}  // namespace musiclm_training_test
}  // namespace melete
