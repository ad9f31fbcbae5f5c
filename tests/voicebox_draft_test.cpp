// Voicebox with a draft for the flow to begin around, by its properties.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/torch.h>

#include "core/base/error.h"
#include "nn/draws.h"
#include "small_voicebox.h"
#include "systems/voicebox/distillation.h"
#include "systems/voicebox/masks.h"
#include "systems/voicebox/stretch.h"

namespace melete::voicebox {

namespace voicebox_draft_test {

constexpr int64_t kFrameDim = 6, kTokens = 5;

VoiceboxConfig small_config() {
  VoiceboxConfig config;
  config.frame_dim = kFrameDim;
  config.tokens = kTokens;
  config.token_dim = 8;
  config.skip_noise = true;
  config.positions.kernel = 5;
  config.transformer.dim = 16;
  config.transformer.depth = 2;
  config.transformer.heads = 2;
  config.transformer.head_dim = 8;
  config.transformer.register_tokens = 2;
  config.draft.dim = 16;
  config.draft.depth = 2;
  config.draft.heads = 2;
  config.draft.blocks = 2;
  return config;
}

at::Tensor ids(int64_t rows, int64_t count, uint64_t seed) {
  return token_ids(rows, count, seed, kTokens);
}

TEST(VoiceboxDraft, RunsOfTokens) {
  const Runs runs = runs_of(torch::tensor({{3, 3, 1, 1, 1, 3}, {0, 2, 2, 2, -1, -1}}));
  EXPECT_TRUE(runs.tokens.equal(torch::tensor({{3, 1, 3}, {0, 2, -1}})));
  EXPECT_TRUE(runs.index.equal(torch::tensor({{0, 0, 1, 1, 1, 2}, {0, 1, 1, 1, 2, 2}})));
  EXPECT_TRUE(runs.place.equal(torch::tensor({{0, 1, 0, 1, 2, 0}, {0, 0, 1, 2, 0, 1}})));
  EXPECT_TRUE(runs.count.equal(torch::tensor({{2, 2, 3, 3, 3, 1}, {1, 3, 3, 3, 2, 2}})));
}

TEST(VoiceboxDraft, PaddingChangesNothing) {
  Voicebox model = moved(Voicebox(small_config()), 0.05);
  const at::NoGradGuard no_grad;
  const int64_t frames = 12, longer = 19;
  FlowBatch batch;
  batch.frames = noise({3, frames, kFrameDim}, 1);
  batch.tokens = ids(3, frames, 2);
  FlowDraws draws{noise({3, frames, kFrameDim}, 4), at::tensor({0.1f, 0.5f, 0.8f}),
                  noise({3, frames}, 5) > 0};
  const FlowLosses alone = flow_matching_losses(model, batch, {}, draws);
  const FlowBatch with = {padded(batch.frames, longer, 3),
                          padded(batch.tokens, longer, -1),
                          first_frames(at::full({3}, frames, at::kLong), longer),
                          {},
                          {}};
  draws = {padded(draws.noise, longer, 1), draws.times, padded(draws.hidden, longer, 1)};
  const FlowLosses losses = flow_matching_losses(model, with, {}, draws);
  expect_close(losses.rows, alone.rows, 1e-4);
  expect_close(losses.draft, alone.draft, 1e-4);
  expect_close(losses.total, alone.total, 1e-4);
}

TEST(VoiceboxDraft, EverythingLearnsAndTheFlowLeavesTheDraftAlone) {
  Voicebox model(small_config());
  model->train();
  FlowBatch batch;
  batch.frames = noise({4, 15, kFrameDim}, 1);
  batch.tokens = ids(4, 15, 2);
  SeededDraws draws(7);
  flow_matching_losses(model, batch, {}, draws).total.backward();
  for (const auto& item : model->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();

  model->zero_grad();
  Condition condition;
  condition.context = batch.frames;
  condition.tokens = batch.tokens;
  condition.hidden = at::ones({4, 15}, at::kBool);
  model->forward(batch.frames, at::full({1}, 0.5), model->prepare(condition)).sum().backward();
  for (const auto& item : model->named_parameters()) {
    const at::Tensor gradient = item.value().grad();
    const bool moved = gradient.defined() && gradient.abs().max().item<double>() > 0;
    if (item.key().starts_with("drafter.")) {
      EXPECT_FALSE(moved) << item.key();
    }
  }
}

// Told which of five tokens each frame is, it finds the five frames that they stand for; its deviation then
// says how much noise there was.
TEST(VoiceboxDraft, FindsTheMeanAndHowFarSpeechIsFromIt) {
  VoiceboxConfig config = small_config();
  Voicebox model(config);
  model->train();
  const at::Tensor frame_of_token = noise({kTokens, kFrameDim}, 11);
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(1e-2));
  double error = 0;
  for (uint64_t step = 0; step < 300; ++step) {
    FlowBatch batch;
    batch.tokens = ids(4, 20, 100 + step);
    batch.frames = frame_of_token.index({batch.tokens}) + 0.2 * noise({4, 20, kFrameDim}, 1000 + step);
    SeededDraws draws(step);
    adam.zero_grad();
    const FlowLosses losses = flow_matching_losses(model, batch, {}, draws);
    losses.total.backward();
    adam.step();
    error = losses.draft.item<double>();
  }
  EXPECT_LT(error, 0.1);  // 0.04 is the noise
  model->eval();
  const at::NoGradGuard no_grad;
  Condition condition;
  condition.tokens = ids(1, 20, 5);
  condition.context = at::zeros({1, 20, kFrameDim});
  const Drafted drafted = model->draft(condition);
  EXPECT_NEAR(drafted.deviation.mean().item<double>(), 0.2, 0.08);
  const at::Tensor x = noise({1, 20, kFrameDim}, 8);
  expect_close(drafted.relative(drafted.around(x)), x, 1e-4);

  FlowSampling how;
  how.temperature = 0;
  SeededDraws draws(1);
  const at::Tensor said = sample(model, condition, how, draws).frames;
  EXPECT_LT((said - frame_of_token.index({condition.tokens})).square().mean().item<double>(), 0.05);
}

TEST(VoiceboxDraft, AStudentThatEqualsItsTeacherHasNothingToLearn) {
  Voicebox teacher = moved(Voicebox(small_config()), 0.05);
  FlowBatch batch;
  batch.frames = noise({2, 11, kFrameDim}, 1);
  batch.tokens = ids(2, 11, 2);
  DistillationConfig config;
  config.teacher_steps = 1;
  config.guidance = 1;
  SeededDraws draws(1);
  EXPECT_LT(distillation_losses(teacher, teacher, batch, {}, config, draws).total.item<double>(), 1e-7);
}

TEST(VoiceboxDraft, WrongInputIsRefused) {
  const auto made = [](auto change) {
    VoiceboxConfig config = small_config();
    change(config);
    Voicebox model(config);
  };
  EXPECT_THROW(made([](VoiceboxConfig& c) { c.tokens = 0; }), Error);
  EXPECT_THROW(made([](VoiceboxConfig& c) { c.draft.kernel = 4; }), Error);
  EXPECT_THROW(made([](VoiceboxConfig& c) { c.draft.heads = 3; }), Error);
  Voicebox model(small_config());
  Condition condition;
  condition.context = at::zeros({1, 8, kFrameDim});
  EXPECT_THROW(model->draft(condition), Error);
}

// Tokens of another pace are those of the frames that they are nearest to, each row by its own lengths.
TEST(VoiceboxDraft, TokensWithAPaceOfTheirOwn) {
  const at::Tensor tokens = torch::tensor({{4, 1, 2}, {0, 2, -1}});
  const at::Tensor spread = torch::tensor({{4, 4, 1, 2, 2}, {0, 0, 2, 2, -1}});
  const at::Tensor valid = spread >= 0;
  EXPECT_TRUE(stretch_tokens(tokens, torch::tensor({3, 2}), torch::tensor({5, 4}), 5).equal(spread));

  Voicebox model = moved(Voicebox(small_config()), 0.05);
  const at::NoGradGuard no_grad;
  Condition given, by_frame;
  given.context = by_frame.context = noise({2, 5, kFrameDim}, 1);
  given.valid = by_frame.valid = valid;
  given.tokens = tokens;
  by_frame.tokens = spread;
  EXPECT_TRUE(model->draft(given).mean.equal(model->draft(by_frame).mean));
}

}  // namespace voicebox_draft_test
}  // namespace melete::voicebox
