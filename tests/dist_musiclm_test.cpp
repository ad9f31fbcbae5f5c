// MuLaN in several processes: every pair is held against those of all ranks, so that ranks change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks.h"

namespace melete {
namespace dist_musiclm_test {

// Each rank has draws of its own, so nothing is drawn here; small gradients move weights little.
constexpr const char* kMulanRecipe = R"(
threads = 1
[text]
tokenizer = "words"
[model]
sample_rate_hz = 8000
dim = 16
contrast_layers = 1
[model.audio]
patch_dropout = 0
[model.audio.spectrogram]
n_fft = 64
window = 64
hop = 32
[model.audio.augment]
stretch = 1.0
frequency_mask = 0
time_mask = 0
[model.audio.transformer]
dim = 16
depth = 2
heads = 1
head_dim = 32
[model.text.transformer]
dim = 16
depth = 2
heads = 1
head_dim = 32
[task.optimiser]
eps = 1e-3
[data]
segment_seconds = 0.2
valid_fraction = 0.2
workers = 1
[train]
save_every = 2
validate_every = 0
sample_every = 0
[train.dist]
heartbeat_seconds = 0.1
timeout_seconds = 60
connect_seconds = 60
)";

class MulanRanks : public Ranks {
 protected:
  static void SetUpTestSuite() {
    Ranks::SetUpTestSuite();
    std::ofstream(shared_ / "mulan.toml") << kMulanRecipe;
  }
  void train(const std::string& name, int64_t steps, const Words& more) {
    Words all = {"train",    "mulan",
                 "--config", (shared_ / "mulan.toml").string(),
                 "--data",   (shared_ / "music").string(),
                 "--out",    (folder_ / name).string(),
                 "--steps",  std::to_string(steps)};
    all.insert(all.end(), more.begin(), more.end());
    run_well(all);
  }
  double between(const std::string& a, const std::string& b, int64_t step) const {
    return difference(checkpoint(folder_ / a, step), checkpoint(folder_ / b, step));
  }
};

TEST_F(MulanRanks, TwoOfFourAndFourOfTwoEqualOneOfEight) {
  train("one", 4, {"--batch_size", "8"});
  train("two", 4, {"--batch_size", "4", "--procs", "2"});
  train("four", 4, {"--batch_size", "2", "--procs", "4"});
  EXPECT_LT(between("one", "two", 4), kRounding);
  EXPECT_LT(between("one", "four", 4), kRounding);
  // Rows of other ranks really count: pairs held against their own four alone give another model.
  train("apart", 4, {"--batch_size", "4", "--train.accumulate", "2"});
  EXPECT_GT(between("one", "apart", 4), 100 * kRounding);
}

TEST_F(MulanRanks, EveryLossIsThatOfTheWholeBatch) {
  for (const char* kind : {"softmax", "sigmoid"}) {
    const std::string one = std::string("one_") + kind, two = std::string("two_") + kind;
    train(one, 3, {"--batch_size", "6", "--model.contrast.kind", kind});
    train(two, 3, {"--batch_size", "3", "--procs", "2", "--model.contrast.kind", kind});
    EXPECT_LT(between(one, two, 3), kRounding) << kind;
  }
  EXPECT_GT(between("one_softmax", "one_sigmoid", 3), 100 * kRounding);
}

TEST_F(MulanRanks, UnevenSharesEqualOne) {
  const Words split = {"--batch_size", "5", "--train.dist.split_batches", "true"};
  train("one", 3, split);
  Words three = split;
  three.insert(three.end(), {"--procs", "3"});  // 2, 2 and 1
  train("three", 3, three);
  EXPECT_LT(between("one", "three", 3), kRounding);
}

TEST_F(MulanRanks, ChunksOnTwoRanksEqualOneWhole) {
  train("one", 3, {"--batch_size", "8"});
  train("chunks", 3, {"--batch_size", "4", "--procs", "2", "--task.chunk", "3"});
  EXPECT_LT(between("one", "chunks", 3), kRounding);
}

}  // namespace dist_musiclm_test
}  // namespace melete
