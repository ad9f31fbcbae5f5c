// MusicLM, trained for minutes on synthesized captioned music, makes pieces that fit their text: the joint
// embedding hears each nearer to the text that asked for it than to others. From sound to sound, with a codec
// and a tokenizer that know nothing but pitch (tonal_parts.h) and so need no training; the embedding is
// trained on the pieces as this codec plays them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/engine.h"
#include "data/base/synth_music.h"
#include "io/audio_tensor.h"
#include "io/base/atomic_file.h"
#include "roles/open.h"
#include "roles/tokenizers.h"
#include "systems/audiolm/task.h"
#include "systems/musiclm/generate.h"
#include "systems/musiclm/task_stage.h"
#include "token_batches.h"
#include "tonal_parts.h"
#include "train/trainer.h"

namespace melete {
namespace musiclm_music_test {

using namespace testing;
using musiclm::MusicStageTask;

constexpr double kSeconds = 2;
constexpr int64_t kTraining = 1280, kAsked = 64;
constexpr int64_t kTokens = 64, kCodes = 64, kCoarse = 2, kQuantizers = 3;

struct Pieces {
  at::Tensor waves;  // [pieces, samples]
  std::vector<std::string> captions;
};

Pieces pieces_of(uint64_t seed, int64_t count) {
  Pieces made;
  std::vector<at::Tensor> waves;
  for (int64_t i = 0; i < count; ++i) {
    const MusicPiece piece = synth_music_piece(seed, i, kTonalRate, kSeconds);
    waves.push_back(at::tensor(at::ArrayRef<float>(piece.samples)));
    made.captions.push_back(piece.caption);
  }
  made.waves = at::stack(waves);
  return made;
}

musiclm::EmbedQuantizerConfig condition_for(const std::string& stage, int64_t dim, int64_t width) {
  musiclm::EmbedQuantizerConfig config;
  config.dim = dim;
  config.quantizers = 4;
  config.codebook_size = 32;
  config.stages = {stage};
  config.stage_dims = {width};
  return config;
}

StageConfig tiny() {
  StageConfig config;
  config.transformer = {96, 2, 3, 32};
  config.transformer.condition = "cross";
  config.text_dim = 96;
  config.condition_drop = 0.1;
  return config;
}

StageTaskConfig how() {
  StageTaskConfig config;
  config.phase.optimiser.learning_rate = 2e-3;
  config.phase.schedule.warmup_steps = 10;
  config.phase.schedule.kind = "cosine";
  config.loss.unique_consecutive = false;
  return config;
}

void train(Task& task, const std::vector<Item>& items, const TokenColumns& columns, int64_t steps) {
  TokenBatches batches(items, columns, 0, 32, 1);
  TrainerConfig config;
  config.steps = steps;
  config.ema.enabled = false;
  Trainer trainer({task, batches}, config);
  for (int64_t i = 0; i < steps; ++i) trainer.step();
  task.model().eval();
}

// Of the other texts, how many are farther from a piece than its own is: 0.5 is chance. similarity [pieces,
// texts], each text its own piece's
at::Tensor farther(const at::Tensor& similarity) {
  const at::Tensor own = similarity.diagonal().unsqueeze(1);
  return (similarity < own).to(at::kFloat).sum(1) / static_cast<double>(similarity.size(1) - 1);
}

TEST(MusicLmMusic, PiecesAreNearerToTheirOwnText) {
  set_threads(1);
  torch::manual_seed(1);
  const Pieces training = pieces_of(1, kTraining), held_out = pieces_of(2, kAsked);
  musiclm::MusicLm model;
  model.audiolm.tokenizer = pitch_tokens(training.waves, kTokens);
  model.audiolm.codec = std::make_shared<PitchCodec>(training.waves, kQuantizers, kCodes);
  const Codec& codec = *model.audiolm.codec;
  const at::Tensor semantic = model.audiolm.tokenizer->tokenize(training.waves);
  const at::Tensor acoustic = codec.encode(training.waves), played = codec.decode(acoustic);

  TemporaryFolder folder;
  for (int64_t i = 0; i < kTraining; ++i) {
    write_wave(folder / fmt::format("played/{}.wav", i), played[i], kTonalRate);
    write_file_atomically(folder / fmt::format("played/{}.txt", i),
                          training.captions[static_cast<size_t>(i)]);
  }
  const std::string run = folder / "mulan";
  ASSERT_EQ(run_program({"train", "mulan", "--config", MELETE_SOURCE_DIR "/recipes/musiclm/mulan_tiny.toml",
                         "--data", folder / "played", "--out", run, "--threads", "1", "--batch_size", "48",
                         "--steps", "160"}),
            0);
  model.embedding = open_joint_embedding(run);

  const at::Tensor joint = model.embedding->embed_audio(played, kTonalRate);
  std::vector<Item> items;
  for (int64_t i = 0; i < kTraining; ++i) {
    items.push_back(token_item(std::to_string(i), semantic[i], acoustic[i]));
    items.back().add("joint", joint[i]);
  }
  Tokenizers tokenizers;
  tokenizers.semantic = model.audiolm.tokenizer;
  tokenizers.codec = model.audiolm.codec;
  tokenizers.joint = model.embedding;
  const TokenColumns columns = tokenizers.columns();

  const auto condition = [&](const char* stage) {
    return condition_for(stage, model.embedding->dim(), tiny().text_dim);
  };
  SemanticConfig semantic_config;
  semantic_config.stage = tiny();
  semantic_config.semantic_tokens = kTokens;
  MusicStageTask<SemanticTask> first("semantic", semantic_config, condition("semantic"), how(), {});
  CoarseConfig coarse_config;
  coarse_config.stage = tiny();
  coarse_config.semantic_tokens = kTokens;
  coarse_config.codebook_size = kCodes;
  coarse_config.quantizers = kCoarse;
  MusicStageTask<CoarseTask> second("coarse", coarse_config, condition("coarse"), how(), {});
  FineConfig fine_config;
  fine_config.stage = tiny();
  fine_config.codebook_size = kCodes;
  fine_config.coarse_quantizers = kCoarse;
  fine_config.fine_quantizers = kQuantizers - kCoarse;
  MusicStageTask<FineTask> third("fine", fine_config, condition("fine"), how(), {});
  train(first, items, columns, 240);
  train(second, items, columns, 240);
  train(third, items, columns, 80);
  model.audiolm.semantic = first.transformer();
  model.audiolm.coarse = second.transformer();
  model.audiolm.fine = third.transformer();
  model.conditions = {
      {"semantic", first.condition()}, {"coarse", second.condition()}, {"fine", third.condition()}};

  // One piece a text that nothing was trained on.
  const auto samples = static_cast<int64_t>(kSeconds * kTonalRate);
  at::Tensor made = at::zeros({kAsked, samples});
  for (int64_t i = 0; i < kAsked; ++i) {
    musiclm::MusicRequest request;
    request.text = held_out.captions[static_cast<size_t>(i)];
    request.audiolm.seconds = kSeconds;
    request.audiolm.seed = static_cast<uint64_t>(i);
    request.audiolm.unique_consecutive = false;
    request.audiolm.may_end = false;
    const at::Tensor wave = generate(model, request).audiolm.waves.front();
    made[i]
        .narrow(0, 0, std::min(samples, wave.size(0)))
        .copy_(wave.narrow(0, 0, std::min(samples, wave.size(0))));
  }
  const at::Tensor texts = model.embedding->embed_text(held_out.captions).t();
  const auto share = [&](const at::Tensor& waves) {
    return farther(model.embedding->embed_audio(waves, kTonalRate).mm(texts)).mean().item<double>();
  };
  const double own = share(made), real = share(codec.decode(codec.encode(held_out.waves)));
  const double error = std::sqrt(1.0 / 12 / kAsked);  // of guessing
  std::printf(
      "other texts that are farther than a piece's own: %.3f (guessing 0.5 +- %.3f); held-out pieces, as the"
      " codec plays them: %.3f\n",
      own, error, real);
  EXPECT_GT(own, 0.5 + 3 * error);
  EXPECT_GT(real, 0.7);
}

}  // namespace musiclm_music_test
}  // namespace melete
