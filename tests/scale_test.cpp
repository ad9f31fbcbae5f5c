// AudioLM's three stages, trained for seconds on synthesized music, go on from a prompt in its scale: from
// sound to sound, with a codec and a tokenizer that know nothing but pitch (tonal_parts.h), which is all that
// is measured.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "core/base/random.h"
#include "core/engine.h"
#include "roles/tokenizers.h"
#include "systems/audiolm/scale_eval.h"
#include "systems/audiolm/task.h"
#include "token_batches.h"
#include "tonal_parts.h"
#include "train/trainer.h"

namespace melete {
namespace scale_test {

using namespace testing;

constexpr double kSeconds = 4;
constexpr int64_t kTokens = 64, kCodes = 64, kCoarse = 2, kQuantizers = 3;

at::Tensor waves_of(const std::vector<TonalPiece>& pieces) {
  std::vector<at::Tensor> waves;
  for (const TonalPiece& piece : pieces) waves.push_back(piece.wave);
  return at::stack(waves);
}

std::vector<Item> tokens_of(const at::Tensor& waves, const SemanticTokenizer& tokenizer, const Codec& codec) {
  const at::Tensor semantic = tokenizer.tokenize(waves), acoustic = codec.encode(waves);
  std::vector<Item> items;
  for (int64_t i = 0; i < waves.size(0); ++i)
    items.push_back(token_item(std::to_string(i), semantic[i], acoustic[i]));
  return items;
}

StageConfig tiny() {
  StageConfig config;
  config.transformer = {64, 2, 4, 16};
  return config;
}

StageTaskConfig how() {
  StageTaskConfig config;
  config.phase.optimiser.learning_rate = 3e-3;
  config.phase.schedule.warmup_steps = 10;
  config.phase.schedule.kind = "cosine";
  config.loss.unique_consecutive = false;
  return config;
}

// Held-out loss after training, as a share of the loss of guessing among `classes`.
double train(StageTask& task, const std::vector<Item>& training, const std::vector<Item>& held_out,
             const TokenColumns& info, int64_t steps, int64_t classes) {
  TokenBatches batches(training, info, 0, 16, 1), unseen(held_out, info, 0, 32, 1);
  TrainerConfig config;
  config.steps = steps;
  config.ema.enabled = false;
  Trainer trainer({task, batches}, config);
  for (int64_t i = 0; i < steps; ++i) trainer.step();
  const at::NoGradGuard no_grad;
  task.model().eval();
  StepContext context;
  context.training = false;
  return task.validate(unseen.batch(0), context).total.item<double>() /
         std::log(static_cast<double>(classes));
}

TEST(Scale, ContinuationsStayInTheScaleOfTheirPrompt) {
  set_threads(0);
  torch::manual_seed(1);
  const auto training = tonal_pieces(1, 360, kTonalRate, kSeconds),
             held_out = tonal_pieces(2, 48, kTonalRate, kSeconds);
  const at::Tensor waves = waves_of(training);
  AudioLm model;
  model.tokenizer = pitch_tokens(waves, kTokens);
  model.codec = std::make_shared<PitchCodec>(waves, kQuantizers, kCodes);
  const auto items = tokens_of(waves, *model.tokenizer, *model.codec);
  const auto unseen = tokens_of(waves_of(held_out), *model.tokenizer, *model.codec);
  Tokenizers tokenizers;
  tokenizers.semantic = model.tokenizer;
  tokenizers.codec = model.codec;
  const TokenColumns info = tokenizers.columns();

  SemanticConfig semantic_config;
  semantic_config.stage = tiny();
  semantic_config.semantic_tokens = kTokens;
  SemanticTask semantic(semantic_config, how(), {});
  CoarseConfig coarse_config;
  coarse_config.stage = tiny();
  coarse_config.semantic_tokens = kTokens;
  coarse_config.codebook_size = kCodes;
  coarse_config.quantizers = kCoarse;
  CoarseTask coarse(coarse_config, how(), {});
  FineConfig fine_config;
  fine_config.stage = tiny();
  fine_config.codebook_size = kCodes;
  fine_config.coarse_quantizers = kCoarse;
  fine_config.fine_quantizers = kQuantizers - kCoarse;
  FineTask fine(fine_config, how(), {});
  const double shares[] = {train(semantic, items, unseen, info, 200, kTokens + 1),
                           train(coarse, items, unseen, info, 200, kCodes + 1),
                           train(fine, items, unseen, info, 120, kCodes)};
  std::printf("held-out loss beside that of guessing: semantic %.2f, coarse %.2f, fine %.2f\n", shares[0],
              shares[1], shares[2]);

  model.semantic = semantic.transformer();
  model.coarse = coarse.transformer();
  model.fine = fine.transformer();
  AudioLmRequest request;
  request.seconds = 2;
  request.seed = 5;
  request.unique_consecutive = false;
  const auto figures = eval_scale(model, held_out, kTonalRate, 2, request);
  for (const ScaleFigure& figure : figures)
    std::printf("%-22s %.3f in its own scale, %.3f in the others', +- %.3f\n", figure.what.c_str(),
                figure.scale.own, figure.scale.others, figure.scale.error);
  for (const double share : shares) EXPECT_LT(share, 0.75);
  const ScaleFigure& made = figures.back();
  EXPECT_GT(made.scale.own, 0.75);
  EXPECT_GT(made.scale.own - made.scale.others, 0.15);
  EXPECT_GT(made.scale.own - made.scale.others, 4 * made.scale.error);
}

}  // namespace scale_test
}  // namespace melete
