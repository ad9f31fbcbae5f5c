// Voicebox's networks, losses and sampling by their properties.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/torch.h>

#include <fstream>
#include <functional>

#include "core/base/error.h"
#include "generate/sampling.h"
#include "io/pickled_tensors.h"
#include "losses/flow_matching.h"
#include "nn/depthwise.h"
#include "nn/draws.h"
#include "nn/mel_frames.h"
#include "pretrained/vocos_features.h"
#include "small_voicebox.h"
#include "systems/voicebox/distillation.h"
#include "systems/voicebox/foreign_names.h"
#include "systems/voicebox/masks.h"
#include "systems/voicebox/stretch.h"

namespace melete::voicebox {

namespace voicebox_model_test {

constexpr int64_t kFrameDim = 6, kTokens = 9;

VoiceboxConfig small_config() {
  VoiceboxConfig config;
  config.frame_dim = kFrameDim;
  config.tokens = kTokens;
  config.token_dim = 8;
  config.positions.kernel = 5;
  config.transformer.dim = 16;
  config.transformer.depth = 4;
  config.transformer.heads = 2;
  config.transformer.head_dim = 8;
  config.transformer.register_tokens = 3;
  config.transformer.gate_loops = true;
  return config;
}

TEST(Depthwise, EqualsTheEnginesConvolution) {
  for (const int64_t channels : {64, 70, 5}) {
    const at::Tensor weight = noise({channels, 1, 7}, 1).requires_grad_();
    const at::Tensor bias = noise({channels}, 2).requires_grad_();
    for (const int64_t time : {1, 4, 19}) {
      const at::Tensor x = noise({3, time, channels}, 3).requires_grad_();
      const at::Tensor ours = depthwise_over_time(x, weight, bias);
      const at::Tensor theirs =
          at::conv1d(x.transpose(1, 2), weight, bias, 1, 3, 1, channels).transpose(1, 2);
      expect_close(ours, theirs, 1e-5);
      const at::Tensor by = noise(ours.sizes(), 4);
      const auto wanted = torch::autograd::grad({(theirs * by).sum()}, {x, weight, bias});
      const auto got = torch::autograd::grad({(ours * by).sum()}, {x, weight, bias});
      for (size_t i = 0; i < wanted.size(); ++i) expect_close(got[i], wanted[i], 1e-5);
    }
  }
}

at::Tensor ids(int64_t rows, int64_t count, uint64_t seed) {
  return token_ids(rows, count, seed, kTokens);
}

Condition some_condition(int64_t rows, int64_t frames, uint64_t seed) {
  Condition condition;
  condition.context = noise({rows, frames, kFrameDim}, seed);
  condition.hidden = noise({rows, frames}, seed + 1) > 0;
  condition.tokens = ids(rows, frames, seed + 2);
  return condition;
}

TEST(VoiceboxModel, PaddingChangesNothing) {
  Voicebox model = moved(Voicebox(small_config()));
  const at::NoGradGuard no_grad;
  const int64_t frames = 11, longer = 17;
  for (const int64_t tokens : {frames, int64_t{7}}) {
    Condition alone = some_condition(2, frames, 10);
    alone.tokens = ids(2, tokens, 5);
    const at::Tensor x = noise({2, frames, kFrameDim}, 3), times = at::tensor({0.2f, 0.9f});
    const at::Tensor expected = model->forward(x, times, model->prepare(alone));

    Condition with;
    with.context = padded(alone.context, longer, 5);
    with.hidden = padded(alone.hidden, longer, 0);
    with.tokens = padded(alone.tokens, tokens == frames ? longer : tokens + 3, -1);
    with.valid = first_frames(at::tensor({frames, frames}), longer);
    const at::Tensor got = model->forward(padded(x, longer, -7), times, model->prepare(with));
    expect_close(got.narrow(1, 0, frames), expected, 1e-4, fmt::format("{} tokens", tokens));
  }
}

TEST(VoiceboxModel, LossLeavesPaddingOut) {
  Voicebox model = moved(Voicebox(small_config()));
  const at::NoGradGuard no_grad;
  const int64_t frames = 12, longer = 20;
  FlowBatch batch;
  batch.frames = noise({3, frames, kFrameDim}, 1);
  batch.tokens = ids(3, frames, 2);
  FlowDraws draws{noise({3, frames, kFrameDim}, 4), at::tensor({0.1f, 0.5f, 0.8f}),
                  noise({3, frames}, 5) > 0};
  const FlowLosses alone = flow_matching_losses(model, batch, {}, draws);
  FlowBatch with = {padded(batch.frames, longer, 3),
                    padded(batch.tokens, longer, -1),
                    first_frames(at::full({3}, frames, at::kLong), longer),
                    {},
                    {}};
  // What is hidden of the padding must not count.
  draws = {padded(draws.noise, longer, 1), draws.times, padded(draws.hidden, longer, 1)};
  const FlowLosses losses = flow_matching_losses(model, with, {}, draws);
  expect_close(losses.rows, alone.rows, 1e-4);
  expect_close(losses.total, alone.total, 1e-4);

  const auto parts = losses_by_time(losses, 2);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].first, "t 0.00-0.50");
  expect_close(parts[0].second, losses.rows[0], 1e-6);
  expect_close(parts[1].second, losses.rows.narrow(0, 1, 2).mean(), 1e-6);
}

TEST(VoiceboxModel, LossHasAGradientEverywhere) {
  Voicebox model(small_config());
  model->train();
  SeededDraws draws(7);
  FlowBatch batch;
  batch.frames = noise({4, 15, kFrameDim}, 1);
  batch.tokens = ids(4, 15, 2);
  batch.valid = first_frames(at::tensor({15, 9, 12, 15}), 15);
  FlowMatchingConfig config;
  flow_matching_losses(model, batch, config, draws).total.backward();
  for (const auto& item : model->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(VoiceboxModel, ContextIsTheCleanSpeech) {
  Voicebox model = moved(Voicebox(small_config()));
  const at::NoGradGuard no_grad;
  FlowBatch batch;
  batch.frames = noise({2, 10, kFrameDim}, 1);
  batch.tokens = ids(2, 10, 2);
  const FlowDraws draws{noise({2, 10, kFrameDim}, 3), at::tensor({0.3f, 0.6f}), noise({2, 10}, 4) > 0};
  FlowBatch told = batch;
  told.context = batch.frames;
  expect_close(flow_matching_losses(model, batch, {}, draws).rows,
               flow_matching_losses(model, told, {}, draws).rows, 1e-6);
}

TEST(VoiceboxModel, HiddenAndDroppedContextIsNotSeen) {
  Voicebox model = moved(Voicebox(small_config()));
  const at::NoGradGuard no_grad;
  Condition condition = some_condition(2, 10, 20);
  const at::Tensor x = noise({2, 10, kFrameDim}, 1), time = at::full({1}, 0.4);
  const at::Tensor before = model->forward(x, time, model->prepare(condition));
  condition.context =
      at::where(condition.hidden.unsqueeze(2), noise({2, 10, kFrameDim}, 9), condition.context);
  EXPECT_TRUE(model->forward(x, time, model->prepare(condition)).equal(before));
  condition.dropped = at::tensor({1, 0}, at::kLong).to(at::kBool);
  const at::Tensor dropped = model->forward(x, time, model->prepare(condition));
  condition.tokens = ids(2, 10, 77);
  condition.context = noise({2, 10, kFrameDim}, 78);
  EXPECT_TRUE(model->forward(x, time, model->prepare(condition))[0].equal(dropped[0]));
  EXPECT_FALSE(model->forward(x, time, model->prepare(condition))[1].equal(dropped[1]));
}

TEST(VoiceboxSampling, GuidanceOneIsNone) {
  Voicebox model = moved(Voicebox(small_config()));
  const at::NoGradGuard no_grad;
  const Condition condition = some_condition(2, 9, 30);
  const at::Tensor x = noise({2, 9, kFrameDim}, 1), time = at::full({1}, 0.25);
  const at::Tensor told = model->forward(x, time, model->prepare(condition));
  EXPECT_TRUE(guided_flow(model, condition, 1)(time, x).equal(told));
  Condition untold = condition;
  untold.dropped = at::ones({2}, at::kBool);
  const at::Tensor none = model->forward(x, time, model->prepare(untold));
  expect_close(guided_flow(model, condition, 0)(time, x), none, 1e-5);
  expect_close(guided_flow(model, condition, 2.5)(time, x), none + 2.5 * (told - none), 1e-5);
  // Rows at times of their own
  const at::Tensor times = at::tensor({0.25f, 0.75f});
  expect_close(guided_flow(model, condition, 2.5)(times, x)[0], (none + 2.5 * (told - none))[0], 1e-5);
}

TEST(VoiceboxSampling, RoundedProductsComeNearTheExactOnes) {
  setenv("MELETE_BF16", "always", 1);  // whatever this processor has
  Voicebox model = moved(Voicebox(small_config()));
  {
    // At the gain that training begins with, attention sees little but its best key, and rounding decides
    // which; see device/rounding_test.cpp.
    const at::NoGradGuard no_grad;
    for (auto& named : model->named_parameters())
      if (named.key().ends_with("query_norm") || named.key().ends_with("key_norm")) named.value().mul_(0.25);
  }
  const Condition condition = some_condition(2, 14, 40);
  FlowSampling how;
  how.solver.steps = 4;
  RowDraws first(1, "test", 2), second(1, "test", 2);
  const at::Tensor exact = sample(model, condition, how, first).frames;
  how.precision = "bf16";
  const at::Tensor rounded = sample(model, condition, how, second).frames;
  unsetenv("MELETE_BF16");
  EXPECT_EQ(rounded.scalar_type(), at::kFloat);
  EXPECT_FALSE(rounded.equal(exact));
  EXPECT_LT((rounded - exact).norm().item<double>(), 0.03 * exact.norm().item<double>());
}

TEST(VoiceboxSampling, InfillingLeavesTheRestAlone) {
  Voicebox model = moved(Voicebox(small_config()));
  const Condition condition = some_condition(3, 14, 40);
  for (const char* method : {"midpoint", "tsit5"}) {
    FlowSampling how;
    how.solver.method = method;
    how.solver.steps = 4;
    how.solver.absolute_tolerance = how.solver.relative_tolerance = 1e-2;
    how.guidance = 1.5;
    SeededDraws draws(3), again(3), other(4);
    const Sampled result = sample(model, condition, how, draws);
    const at::Tensor seen = condition.hidden.logical_not();
    EXPECT_TRUE(result.frames.index({seen}).equal(condition.context.index({seen})));
    EXPECT_TRUE(result.frames.equal(sample(model, condition, how, again).frames));
    EXPECT_FALSE(result.frames.equal(sample(model, condition, how, other).frames));
    EXPECT_TRUE(result.frames.isfinite().all().item<bool>());
    EXPECT_FALSE(result.frames.requires_grad());
    if (std::string(method) == "midpoint") {
      EXPECT_EQ(result.solution.evaluations, 8);
    }
  }
}

TEST(VoiceboxSampling, LengthsInTokensAndFrames) {
  EXPECT_EQ(frames_of_tokens(12, 50, 75), 18);  // the same stretch of time at more frames a second
  EXPECT_EQ(frames_of_tokens(13, 50, 75), 20);
  const at::Tensor x = noise({2, 5, 3}, 1);
  EXPECT_TRUE(with_length(x, 3).equal(x.narrow(1, 0, 3)));
  EXPECT_TRUE(with_length(x, 7).narrow(1, 0, 5).equal(x));
  EXPECT_EQ(with_length(x, 7).narrow(1, 5, 2).abs().max().item<double>(), 0);
}

TEST(VoiceboxModel, WrongInputIsRefused) {
  EXPECT_THROW(
      {
        VoiceboxConfig config = small_config();
        config.transformer.depth = 3;
        Voicebox model(config);
      },
      Error);
  Voicebox model(small_config());
  Condition condition = some_condition(1, 5, 1);
  condition.tokens = at::Tensor();
  EXPECT_THROW(model->prepare(condition), Error);
  condition = some_condition(1, 5, 1);
  const auto prepared = model->prepare(condition);
  EXPECT_THROW(model->forward(noise({1, 6, kFrameDim}, 1), at::zeros({1}), prepared), Error);
}

TEST(VoiceboxMasks, SpansStayInTheirRow) {
  SeededDraws draws(5);
  const at::Tensor lengths = at::tensor({40, 10, 25, 1, 40});
  for (int round = 0; round < 50; ++round) {
    const at::Tensor mask = span_mask(lengths, 40, 0.3, 0.8, draws);
    EXPECT_FALSE(at::logical_and(mask, first_frames(lengths, 40).logical_not()).any().item<bool>());
    const at::Tensor count = mask.sum(1);
    EXPECT_TRUE((count <= (lengths * 0.8).ceil()).all().item<bool>());
    EXPECT_TRUE((count >= (lengths * 0.3).floor()).all().item<bool>());
    // one stretch: at most one rise
    const at::Tensor edge = at::constant_pad_nd(mask.to(at::kInt), {1, 0}).diff(1, 1);
    EXPECT_TRUE((edge.eq(1).sum(1) <= 1).all().item<bool>());
  }
}

TEST(VoiceboxStretch, MatchesLinearInterpolation) {
  namespace F = torch::nn::functional;
  const at::Tensor x = noise({2, 7, 3}, 1), lengths = at::full({2}, 7, at::kLong);
  for (const int64_t frames : {3, 7, 12, 20}) {
    const at::Tensor want = F::interpolate(x.transpose(1, 2), F::InterpolateFuncOptions()
                                                                  .size(std::vector<int64_t>{frames})
                                                                  .mode(torch::kLinear)
                                                                  .align_corners(false))
                                .transpose(1, 2);
    expect_close(stretch(x, lengths, at::full({2}, frames, at::kLong), frames), want, 1e-5);
  }
  // Each row by its own lengths, whatever stands after them.
  const at::Tensor own = stretch(x.narrow(0, 1, 1).narrow(1, 0, 4), at::tensor({4}), at::tensor({9}), 9);
  const at::Tensor both = stretch(x, at::tensor({7, 4}), at::tensor({20, 9}), 20);
  expect_close(both.narrow(0, 1, 1).narrow(1, 0, 9), own, 1e-6);
}

TEST(VoiceboxDurations, RepeatsPhonemes) {
  const at::Tensor phonemes = torch::tensor({{4, 7, 2}, {5, 6, -1}}),
                   durations = torch::tensor({{2.4f, 0.1f, 2.6f}, {1.f, 2.f, 9.f}});
  EXPECT_TRUE(repeat_by_durations(phonemes, durations)
                  .equal(torch::tensor({{4, 4, 7, 2, 2, 2}, {5, 6, 6, -1, -1, -1}})));
  EXPECT_TRUE(repeat_as_upstream(phonemes, torch::tensor({{2.4f, 0.1f, 2.6f}, {1.f, 2.f, 1.f}}))
                  .equal(torch::tensor({{4, 4, 7, 2, 2}, {5, 6, 6, -1, 0}})));
}

TEST(VoiceboxDurations, PaddingChangesNothing) {
  DurationConfig config;
  config.phonemes = 12;
  config.phoneme_dim = 10;
  config.positions.kernel = 3;
  config.transformer.dim = 16;
  config.transformer.depth = 2;
  config.transformer.heads = 2;
  config.transformer.head_dim = 8;
  DurationPredictor model = moved(DurationPredictor(config));
  const at::NoGradGuard no_grad;
  DurationInput alone;
  alone.phonemes = ids(2, 6, 1);
  alone.condition = noise({2, 6, 1}, 2);
  alone.hidden = noise({2, 6}, 3) > 0;
  DurationInput with = alone;
  with.phonemes = padded(alone.phonemes, 10, -1);
  with.condition = padded(alone.condition, 10, 4);
  with.hidden = padded(alone.hidden, 10, 1);
  expect_close(model->forward(with).narrow(1, 0, 6), model->forward(alone), 1e-4);
  const at::Tensor durations = noise({2, 6}, 9).abs() * 5;
  expect_close(duration_losses(model, with, padded(durations, 10, 100)).total,
               duration_losses(model, alone, durations).total, 1e-4);
  EXPECT_TRUE(model->guided(alone, 1).equal(model->forward(alone)));
}

TEST(VoiceboxFiles, UpstreamsPackageHasThePlacesWeExpect) {
  const std::string stem = std::string(MELETE_SOURCE_DIR) + "/tests/golden/voicebox/checkpoints/voicebox.2";
  const TensorMap package = read_torch_tensors(stem + ".pt");
  TensorMap weights;
  for (const auto& [key, tensor] : package)
    if (const std::string prefix = "model.voicebox."; key.starts_with(prefix))
      weights[key.substr(prefix.size())] = tensor;
  ASSERT_FALSE(weights.empty());
  const auto arguments = voicebox_pytorch::voicebox_arguments_of_file(weights, stem);
  std::ifstream file(stem + ".json");
  const auto about = nlohmann::ordered_json::parse(file);
  for (const auto& [name, value] : about.at("voicebox").items()) EXPECT_EQ(arguments.at(name), value) << name;

  Voicebox model(voicebox_pytorch::voicebox_config(arguments));
  voicebox_pytorch::load(*model, weights, stem);
  const TensorMap back = voicebox_pytorch::state_dict(*model);
  ASSERT_EQ(back.size(), weights.size());
  for (const auto& [name, tensor] : weights) {
    ASSERT_TRUE(back.count(name)) << name;
    EXPECT_TRUE(back.at(name).equal(tensor)) << name;
  }
  // The optimiser numbers its parameters in this order; what is never learned is among them.
  std::vector<std::string> names;
  for (const auto& pair : voicebox_pytorch::pairs(*model)) names.push_back("voicebox." + pair.theirs);
  voicebox_pytorch::sort_as_theirs(names);
  EXPECT_EQ(names, about.at("parameter_order").get<std::vector<std::string>>());
  for (size_t i = 0; i < names.size(); ++i) {
    const auto moments = package.find(fmt::format("optim.state.{}.exp_avg", i));
    ASSERT_EQ(moments != package.end(), names[i] != "voicebox.null_cond") << names[i];
    if (moments == package.end()) continue;
    EXPECT_EQ(moments->second.sizes(), weights.at(names[i].substr(9)).sizes()) << names[i];
  }
  EXPECT_EQ(voicebox_pytorch::voicebox_config(voicebox_pytorch::voicebox_arguments(model->config()))
                .transformer.dim,
            model->config().transformer.dim);
}

TEST(VoiceboxDistillation, OneUnguidedStepOfTheTeacherIsWhatAnEqualStudentSays) {
  Voicebox teacher = moved(Voicebox(small_config()));
  FlowBatch batch;
  batch.frames = noise({2, 11, kFrameDim}, 1);
  batch.tokens = ids(2, 11, 2);
  DistillationConfig config;
  config.teacher_steps = 1;
  config.guidance = 1;
  SeededDraws draws(1);
  EXPECT_LT(distillation_losses(teacher, teacher, batch, {}, config, draws).total.item<double>(), 1e-9);
  config.guidance = 3;
  SeededDraws same(1);
  EXPECT_GT(distillation_losses(teacher, teacher, batch, {}, config, same).total.item<double>(), 1e-4);
}

// So many steps of Adam from the losses of their own draws.
void train_briefly(Voicebox& model, uint64_t steps, const std::function<at::Tensor(Draws&)>& loss) {
  model->train();
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(3e-3));
  for (uint64_t step = 0; step < steps; ++step) {
    SeededDraws draws(step);
    adam.zero_grad();
    loss(draws).backward();
    adam.step();
  }
  model->eval();
}

TEST(VoiceboxDistillation, TheStudentComesNearerToItsTeacher) {
  torch::manual_seed(1);
  FlowBatch batch;
  batch.frames = noise({4, 12, kFrameDim}, 1);
  batch.tokens = ids(4, 12, 2);
  FlowMatchingConfig flow;
  flow.hide_all = 1;
  // A student learns along the straight ways to speech, so its teacher must know some.
  Voicebox teacher(small_config()), student(small_config());
  train_briefly(teacher, 400,
                [&](Draws& draws) { return flow_matching_losses(teacher, batch, flow, draws).total; });
  {
    const at::NoGradGuard no_grad;  // it begins as its teacher, as a run does
    const auto known = teacher->named_parameters();
    for (auto& parameter : student->named_parameters()) parameter.value().copy_(known[parameter.key()]);
  }
  DistillationConfig config;
  config.steps = 4;
  config.guidance = 2;
  Condition condition;
  condition.context = batch.frames;
  condition.tokens = batch.tokens;
  condition.hidden = at::ones({4, 12}, at::kBool);
  const auto error = [&] {
    SeededDraws draws(9);
    return distillation_errors(student, teacher, condition, config.guidance, draws);
  };
  const auto before = error();
  train_briefly(student, 400, [&](Draws& draws) {
    return distillation_losses(student, teacher, batch, flow, config, draws).total;
  });
  const auto after = error();
  ASSERT_EQ(after.size(), 3u);
  EXPECT_EQ(after[0].steps, 4);
  EXPECT_LT(after[0].student.item<double>(), 0.8 * before[0].student.item<double>());
}

}  // namespace voicebox_model_test
}  // namespace melete::voicebox
