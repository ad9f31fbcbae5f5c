// Training MuLaN and MusicLM's stages: they learn a batch, a checkpoint alone makes the embedding, a batch of
// one is refused.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "core/base/error.h"
#include "run/checkpoint.h"
#include "run/run_folder.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task.h"
#include "train/trainer.h"

namespace melete {

namespace {

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

void make_small(Schema& s) {
  for (const std::string tower : {"model.audio.transformer.", "model.text.transformer."}) {
    s.set(tower + "dim", "32");
    s.set(tower + "depth", "2");
    s.set(tower + "heads", "2");
    s.set(tower + "head_dim", "16");
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

}  // namespace

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

TEST(MusicLmTraining, ChunksGiveTheLossOfTheWholeBatch) {
  double losses[2];
  for (const int64_t chunk : {0, 3}) {
    torch::manual_seed(1);
    const auto recipe = make_mulan_recipe();
    Schema settings = recipe->schema();
    make_small(settings);
    settings.set("task.chunk", std::to_string(chunk));
    recipe->settle_on_paper();
    torch::manual_seed(2);
    const Batch batch = recipe->example(8);
    torch::manual_seed(3);
    const auto task = recipe->make_task();
    losses[chunk == 0 ? 0 : 1] = learn(*recipe, *task, batch, 2).after;
  }
  EXPECT_NEAR(losses[0], losses[1], 0.02);
}

TEST(MusicLmTraining, ABatchOfOneIsRefused) {
  const auto recipe = make_mulan_recipe();
  Schema settings = recipe->schema();
  make_small(settings);
  settings.set("batch_size", "1");
  EXPECT_THROW(recipe->settle_on_paper(), Error);
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
    settings.set("model.heads", "2");
    settings.set("model.head_dim", "16");
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

}  // namespace melete
