// AudioLM's stages: what must not change their tokens (cache, batch, padding), and what each loss counts.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <set>

#include "core/base/error.h"
#include "systems/audiolm/stage_losses.h"
#include "systems/audiolm/stages.h"

namespace melete {

namespace stages_test {

StageConfig small_stage(const std::string& condition = "none") {
  StageConfig config;
  config.transformer.dim = 32;
  config.transformer.depth = 2;
  config.transformer.heads = 4;
  config.transformer.head_dim = 8;
  config.transformer.condition = condition;
  config.text_dim = 12;
  return config;
}

SemanticTransformer semantic_model(const std::string& condition = "none") {
  torch::manual_seed(1);
  SemanticConfig config;
  config.stage = small_stage(condition);
  config.semantic_tokens = 20;
  SemanticTransformer model(config);
  model->eval();
  return model;
}

CoarseTransformer coarse_model(const std::string& condition = "none") {
  torch::manual_seed(2);
  CoarseConfig config;
  config.stage = small_stage(condition);
  config.semantic_tokens = 20;
  config.codebook_size = 16;
  config.quantizers = 2;
  CoarseTransformer model(config);
  model->eval();
  return model;
}

FineTransformer fine_model(const std::string& condition = "none") {
  torch::manual_seed(3);
  FineConfig config;
  config.stage = small_stage(condition);
  config.codebook_size = 16;
  config.coarse_quantizers = 2;
  config.fine_quantizers = 3;
  FineTransformer model(config);
  model->eval();
  return model;
}

at::Tensor random_ids(at::IntArrayRef shape, int64_t classes, uint64_t seed) {
  torch::manual_seed(seed);
  return at::randint(classes, shape, at::kLong);
}

Condition some_text(int64_t rows) {
  torch::manual_seed(9);
  at::Tensor embeddings = at::randn({rows, 5, 12});
  embeddings.narrow(1, 3, 2).zero_();  // padding
  return masked_condition(embeddings);
}

StageRequest request_with(Draws& draws, const Condition& condition = {}, double guidance = 1) {
  StageRequest request;
  request.draws = &draws;
  request.condition = condition;
  request.sampling.guidance = guidance;
  request.sampling.filter = 0.5;
  return request;
}

Condition row_of(const Condition& condition, int64_t row) {
  if (!condition.embeddings.defined()) return {};
  return {condition.embeddings.narrow(0, row, 1), condition.mask.narrow(0, row, 1)};
}

void expect_equal_ids(const at::Tensor& got, const at::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_TRUE(got.equal(want)) << got << "\nwanted\n" << want;
}

// Row `row` of a padded result, without its padding.
at::Tensor unpadded(const at::Tensor& ids, int64_t row) {
  const at::Tensor line = ids[row];
  const at::Tensor there = line.dim() == 1 ? line.ne(kPadding) : line.ne(kPadding).all(-1);
  return line.index({there});
}

const std::vector<std::string> kConditions = {"none", "cross", "prefix"};

TEST(Stages, CacheChangesNothing) {
  for (const std::string& condition : kConditions) {
    const Condition text = condition == "none" ? Condition{} : some_text(2);
    at::Tensor semantic[2], coarse[2], fine[2];
    for (const bool cache : {false, true}) {
      auto first = semantic_model(condition);
      auto second = coarse_model(condition);
      auto third = fine_model(condition);
      RowDraws draws(5, "test", 2);
      StageRequest request = request_with(draws, text, 2);
      request.use_cache = cache;
      semantic[cache] = generate_semantic(first, random_ids({2, 4}, 20, 4), 14, request);
      coarse[cache] = generate_coarse(second, random_ids({2, 6}, 20, 5), {}, 5, request);
      fine[cache] = generate_fine(third, random_ids({2, 4, 2}, 16, 6), {}, request);
    }
    expect_equal_ids(semantic[1], semantic[0]);
    expect_equal_ids(coarse[1], coarse[0]);
    expect_equal_ids(fine[1], fine[0]);
  }
}

TEST(Stages, ABatchEqualsItsRows) {
  for (const std::string& condition : kConditions) {
    const Condition text = condition == "none" ? Condition{} : some_text(3);
    auto first = semantic_model(condition);
    auto second = coarse_model(condition);
    auto third = fine_model(condition);
    at::Tensor prompt = random_ids({3, 6}, 20, 4);
    prompt[1].narrow(0, 3, 3).fill_(kPadding);  // unequal prompts
    at::Tensor semantic = random_ids({3, 7}, 20, 5);
    semantic[2].narrow(0, 4, 3).fill_(kPadding);
    at::Tensor coarse = random_ids({3, 4, 2}, 16, 6);
    coarse[0].narrow(0, 2, 2).fill_(kPadding);

    RowDraws draws1(1, "a", 3), draws2(1, "b", 3), draws3(1, "c", 3);
    const at::Tensor ids = generate_semantic(first, prompt, 16, request_with(draws1, text, 2));
    const at::Tensor codes = generate_coarse(second, semantic, {}, 5, request_with(draws2, text, 2));
    const at::Tensor fine = generate_fine(third, coarse, {}, request_with(draws3, text, 2));
    for (int64_t row = 0; row < 3; ++row) {
      RowDraws one1(1, "a", 1, row), one2(1, "b", 1, row), one3(1, "c", 1, row);
      expect_equal_ids(unpadded(ids, row),
                       unpadded(generate_semantic(first, unpadded(prompt, row).unsqueeze(0), 16,
                                                  request_with(one1, row_of(text, row), 2)),
                                0));
      expect_equal_ids(unpadded(codes, row),
                       unpadded(generate_coarse(second, unpadded(semantic, row).unsqueeze(0), {}, 5,
                                                request_with(one2, row_of(text, row), 2)),
                                0));
      expect_equal_ids(unpadded(fine, row),
                       unpadded(generate_fine(third, unpadded(coarse, row).unsqueeze(0), {},
                                              request_with(one3, row_of(text, row), 2)),
                                0));
    }
  }
}

TEST(Stages, GuidanceOfOneIsNone) {
  auto model = semantic_model("cross");
  Condition text = some_text(2);
  const at::Tensor prompt = random_ids({2, 4}, 20, 4);
  RowDraws draws(3, "test", 2), again(3, "test", 2), other(3, "test", 2);
  const at::Tensor one = generate_semantic(model, prompt, 24, request_with(draws, text, 1));
  const Condition unmasked{text.embeddings.narrow(1, 0, 3), {}};  // never dropped, so never guided
  expect_equal_ids(one, generate_semantic(model, prompt, 24, request_with(again, unmasked, 5)));
  const at::Tensor far = generate_semantic(model, prompt, 24, request_with(other, text, 30));
  EXPECT_FALSE(far.sizes() == one.sizes() && far.equal(one));
}

TEST(Stages, TheSameSeedGivesTheSameTokensAndAnotherOthers) {
  auto model = semantic_model();
  const at::Tensor prompt = random_ids({1, 2}, 20, 4);
  at::Tensor made[3];
  for (int i = 0; i < 3; ++i) {
    RowDraws draws(i < 2 ? 7 : 8, "test", 1);
    made[i] = generate_semantic(model, prompt, 30, request_with(draws));
  }
  expect_equal_ids(made[0], made[1]);
  EXPECT_FALSE(made[2].sizes() == made[0].sizes() && made[2].equal(made[0]));
}

TEST(Stages, TemperatureZeroTakesTheLikeliest) {
  const at::Tensor logits = at::randn({4, 9});
  SeededDraws draws(1);
  SamplingConfig config;
  config.temperature = 0;
  config.filter = 0;
  EXPECT_TRUE(sample(logits, config, draws).equal(logits.argmax(-1)));
}

// float32 is sampled by loops of our own, everything else by operators.
TEST(Stages, SamplingByLoopsTakesWhatOperatorsTake) {
  torch::manual_seed(8);
  const at::Tensor logits = at::randn({4, 37}) * 3;
  logits.narrow(1, 5, 9).fill_(-std::numeric_limits<float>::infinity());
  for (const double temperature : {0.0, 0.7, 1.0, 4.0})
    for (const int64_t top_k : {0, 1, 2, 20, 36, 37, 100})
      for (uint64_t seed = 0; seed < 20; ++seed) {
        SamplingConfig config;
        config.temperature = temperature;
        config.top_k = top_k;
        RowDraws loops(seed, "test", 4), operators(seed, "test", 4);
        expect_equal_ids(sample(logits, config, loops), sample(logits.to(at::kDouble), config, operators));
      }
  SamplingConfig config;
  RowDraws draws(1, "test", 1);
  config.top_k = 3;  // of five that are alike
  EXPECT_LT(sample(at::ones({1, 5}), config, draws).item<int64_t>(), 5);
  at::Tensor broken = at::randn({1, 50});
  broken[0][7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sample(broken, config, draws).item<int64_t>(), 7);
}

TEST(Stages, TopKAndTopPNeverTakeTheRest) {
  const at::Tensor logits = at::tensor({0.f, 1.f, 2.f, 3.f, 10.f}).unsqueeze(0);
  SeededDraws draws(1);
  SamplingConfig top_k, top_p;
  top_k.top_k = 2;
  top_k.temperature = 100;
  top_p.filter = 0;
  top_p.top_p = 0.5;
  bool second = false;
  for (int i = 0; i < 200; ++i) {
    const auto id = sample(logits, top_k, draws).item<int64_t>();
    EXPECT_GE(id, 3);
    second |= id == 3;
    EXPECT_EQ(sample(logits, top_p, draws).item<int64_t>(), 4);
  }
  EXPECT_TRUE(second);
}

TEST(Stages, PaddedItemsHaveTheLogitsOfUnpaddedOnes) {
  const at::NoGradGuard no_grad;
  auto model = fine_model();
  at::Tensor coarse = random_ids({2, 8}, 16, 6), fine = random_ids({2, 12}, 16, 7);
  coarse[1].narrow(0, 4, 4).fill_(kPadding);
  const FineLogits both = model(coarse, fine, StagePass{});
  // The second item alone: two frames of coarse, and the fine codes of those.
  const FineLogits one =
      model(coarse.narrow(0, 1, 1).narrow(1, 0, 4), fine.narrow(0, 1, 1).narrow(1, 0, 6), StagePass{});
  EXPECT_TRUE(both.fine[1].narrow(0, 0, 6).allclose(one.fine[0].narrow(0, 0, 6), 1e-4, 1e-5));

  auto second = coarse_model();
  at::Tensor semantic = random_ids({2, 6}, 20, 8), codes = random_ids({2, 6}, 16, 9);
  semantic[1].narrow(0, 3, 3).fill_(kPadding);
  StagePass pass;
  pass.seen = at::constant_pad_nd(semantic.ne(kPadding), {1, 7}, 1);
  const CoarseLogits padded = second(semantic, codes, pass);
  const CoarseLogits alone =
      second(semantic.narrow(0, 1, 1).narrow(1, 0, 3), codes.narrow(0, 1, 1), StagePass{});
  EXPECT_TRUE(padded.coarse[1].allclose(alone.coarse[0], 1e-4, 1e-5));
}

TEST(Stages, LossesStartNearChance) {
  StageInput input;
  input.semantic = random_ids({4, 40}, 20, 1);
  input.acoustic = random_ids({4, 20, 5}, 16, 2);
  SeededDraws draws(3);
  input.draws = &draws;
  auto model = semantic_model();
  const StageLosses losses = semantic_losses(model, input, {});
  EXPECT_NEAR(losses.total.item<double>(), std::log(21.0), 1.0);
  EXPECT_EQ(losses.named.front().first, "accuracy");
}

TEST(Stages, TidyTokensDropsPaddingAndRuns) {
  const at::Tensor ids = at::tensor({1, 1, 2, -1, 3, 3, 3, 3}, at::kLong).view({2, 4});
  expect_equal_ids(tidy_tokens(ids, 9, true), at::tensor({1, 2, 9, 3, 9, -1}, at::kLong).view({2, 3}));
  expect_equal_ids(tidy_tokens(ids, 3, true), at::tensor({1, 2, 3, 3, -1, -1}, at::kLong).view({2, 3}));
  expect_equal_ids(tidy_tokens(ids, -1, false),
                   at::tensor({1, 1, 2, -1, 3, 3, 3, 3}, at::kLong).view({2, 4}));
}

TEST(Stages, EndsStandOnlyBetweenTheFramesOfAllGroups) {
  auto model = coarse_model();
  {  // an end wherever one may stand
    const at::NoGradGuard no_grad;
    model->coarse_logits.select(1, -1).mul_(1e3);
  }
  for (const int64_t between : {1, 3}) {
    std::set<int64_t> lengths;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SeededDraws draws(seed);
      StageRequest request = request_with(draws);
      request.sampling.temperature = 100;
      request.sampling.filter = 0;
      request.frames_between_ends = between;
      const at::Tensor codes = generate_coarse(model, random_ids({1, 5}, 20, seed), {}, 12, request);
      lengths.insert(unpadded(codes, 0).size(0));
    }
    for (const int64_t length : lengths) EXPECT_EQ(length % between, 0) << length;
    EXPECT_LT(*lengths.begin(), 12) << "some must end early";
  }
}

TEST(Stages, ConditionsAreDroppedAsTold) {
  const at::NoGradGuard no_grad;
  auto model = semantic_model("cross");
  StageInput input;
  input.semantic = random_ids({2, 12}, 20, 1);
  input.condition = some_text(2);
  input.forget = false;
  const at::Tensor with = semantic_losses(model, input, {}).logits;
  input.condition_drop = 0;
  EXPECT_TRUE(semantic_losses(model, input, {}).logits.equal(with));
  input.condition_drop = 1;
  EXPECT_FALSE(semantic_losses(model, input, {}).logits.allclose(with));
}

TEST(Stages, TheForgetfulMaskHidesItsShareAndNeverTheFirst) {
  SeededDraws draws(1);
  const at::Tensor mask = forgetful_mask(50, 20, 0.15, draws);
  EXPECT_TRUE(mask.logical_not().sum(-1).eq(3).all().item<bool>());
  EXPECT_TRUE(mask.select(1, 0).all().item<bool>());
}

TEST(Stages, AConditionedModelRefusesToGoWithoutText) {
  auto model = semantic_model("cross");
  EXPECT_THROW(model(random_ids({1, 3}, 20, 1), StagePass{}), Error);
  auto plain = semantic_model();
  StagePass pass;
  pass.condition = some_text(1);
  EXPECT_THROW(plain(random_ids({1, 3}, 20, 1), pass), Error);
}

}  // namespace stages_test
}  // namespace melete
