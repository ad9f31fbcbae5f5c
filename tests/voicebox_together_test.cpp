// Several sentences through Voicebox's flow as one batch.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>

#include "core/base/error.h"
#include "generate/sampling.h"
#include "small_voicebox.h"
#include "systems/voicebox/sampling_together.h"

namespace melete::voicebox {

namespace voicebox_together_test {

constexpr int64_t kFrameDim = 6, kTokens = 9;

VoiceboxConfig small_config(bool draft) {
  VoiceboxConfig config;
  config.frame_dim = kFrameDim;
  config.tokens = kTokens;
  config.token_dim = 8;
  config.positions.kernel = 5;
  config.transformer.dim = 16;
  config.transformer.depth = 2;
  config.transformer.heads = 2;
  config.transformer.head_dim = 8;
  config.transformer.register_tokens = 3;
  config.transformer.gate_loops = true;
  if (!draft) return config;
  config.skip_noise = true;
  config.draft.dim = 16;
  config.draft.depth = 2;
  config.draft.heads = 2;
  config.draft.blocks = 2;
  return config;
}

// The first `known` frames are in sight.
Condition sentence(int64_t frames, int64_t known, uint64_t seed) {
  Condition condition;
  condition.context = noise({1, frames, kFrameDim}, seed);
  condition.tokens = token_ids(1, frames, seed + 1, kTokens);
  condition.hidden = at::ones({1, frames}, at::kBool);
  condition.hidden.narrow(1, 0, known).fill_(false);
  return condition;
}

SampledRows sampled(Voicebox& model, const std::vector<Condition>& rows, const std::vector<int64_t>& numbers,
                    const FlowSampling& how) {
  return sample_together(model, rows, how,
                         [&](size_t row) { return std::make_unique<RowDraws>(1, "test", 1, numbers[row]); });
}

TEST(VoiceboxTogether, BatchEqualsOneByOne) {
  // 17 x 6 is no multiple of the 16 values that the engine draws at once.
  const std::vector<Condition> rows{sentence(17, 4, 10), sentence(9, 0, 20), sentence(30, 11, 30)};
  for (const bool draft : {false, true}) {
    torch::manual_seed(3);  // what rounding comes to depends on the weights
    Voicebox model = moved(Voicebox(small_config(draft)), 0.05);
    for (const double guidance : {1.0, 2.5}) {
      FlowSampling how;
      how.solver.method = guidance == 1 ? "euler" : "midpoint";
      how.solver.steps = 4;
      how.guidance = guidance;
      const SampledRows all = sampled(model, rows, {0, 1, 2}, how);
      ASSERT_EQ(all.frames.size(), rows.size());
      for (int64_t i = 0; i < 3; ++i) {
        const Condition& row = rows[static_cast<size_t>(i)];
        RowDraws draws(1, "test", 1, i);
        const Sampled alone = sample(model, row, how, draws);
        const at::Tensor& made = all.frames[static_cast<size_t>(i)];
        ASSERT_EQ(made.sizes(), alone.frames.sizes());
        expect_close(made, alone.frames, 1e-5);
        EXPECT_EQ(all.work.evaluations, alone.solution.evaluations);
        const int64_t known = row.hidden.logical_not().sum().item<int64_t>();
        EXPECT_TRUE(made.narrow(1, 0, known).equal(row.context.narrow(1, 0, known)));
      }
      EXPECT_FALSE(sampled(model, {rows[0]}, {7}, how).frames[0].equal(all.frames[0]));  // other noise
    }
  }
}

TEST(VoiceboxTogether, BatchesAreOfLikeLength) {
  const std::vector<int64_t> lengths{50, 10, 52, 11, 300, 12, 49};
  const auto batches = batches_of_like_length(lengths, 3);
  const std::vector<std::vector<int64_t>> expected{{0, 2, 6}, {1, 3, 5}, {4}};
  EXPECT_EQ(batches, expected);
  const std::vector<std::vector<int64_t>> in_order{{0}, {1}, {2}, {3}, {4}, {5}, {6}};
  EXPECT_EQ(batches_of_like_length(lengths, 1), in_order);
  EXPECT_TRUE(batches_of_like_length({}, 4).empty());
  EXPECT_THROW(batches_of_like_length(lengths, 0), Error);
}

TEST(VoiceboxTogether, RowsOfOneLengthNeedNoMask) {
  EXPECT_FALSE(joined_rows({sentence(8, 0, 1), sentence(8, 3, 2)}).valid.defined());
  const Condition all = joined_rows({sentence(8, 0, 1), sentence(5, 3, 2)});
  EXPECT_EQ(all.valid.sum().item<int64_t>(), 13);
  EXPECT_EQ(all.tokens.lt(0).sum().item<int64_t>(), 3);
}

TEST(VoiceboxTogether, WrongInputIsRefused) {
  Voicebox model = moved(Voicebox(small_config(false)));
  FlowSampling how;
  how.solver.method = "dopri5";
  EXPECT_THROW(sampled(model, {sentence(8, 0, 1), sentence(5, 0, 2)}, {0, 1}, how), Error);
  EXPECT_NO_THROW(sampled(model, {sentence(8, 0, 1)}, {0}, how));
  Condition other = sentence(8, 0, 1);
  other.tokens = token_ids(1, 4, 3, kTokens);
  EXPECT_THROW(joined_rows({other}), Error);
  EXPECT_THROW(joined_rows({}), Error);
}

}  // namespace voicebox_together_test

}  // namespace melete::voicebox
