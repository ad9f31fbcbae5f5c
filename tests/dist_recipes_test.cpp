// Two ranks equal one, whatever is trained: every recipe in the list, present and future.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/app.h"
#include "core/base/random.h"
#include "core/engine.h"
#include "dist/group.h"
#include "every_recipe.h"
#include "nn/draws.h"
#include "ranks.h"

namespace melete {
namespace dist_recipes_test {

namespace fs = std::filesystem;

constexpr int64_t kParts = 2;  // ranks, or micro-batches of one process
constexpr int64_t kItems = 2;  // of each

// The same numbers for the same items, whoever has them: drawn for the whole batch, of which a rank (or a
// micro-batch) takes its part. What has one row decides for everyone.
class DrawsOfOnePart : public Draws {
 public:
  DrawsOfOnePart(uint64_t key, int64_t part, int64_t parts)
      : generator_(at::detail::createCPUGenerator(key)), part_(part), parts_(parts) {}

  int64_t integer(std::string_view, int64_t low, int64_t high) override {
    return at::randint(low, high, {1}, generator_, at::kLong).item<int64_t>();
  }
  at::Tensor rows(std::string_view, int64_t population, int64_t count) override {
    if (population >= count) return at::randperm(population, generator_, at::kLong).narrow(0, 0, count);
    return at::randint(0, population, {count}, generator_, at::kLong);
  }
  at::Tensor uniform(std::string_view, at::IntArrayRef shape) override {
    return own(at::rand(whole(shape), generator_));
  }
  at::Tensor normal(std::string_view, at::IntArrayRef shape) override {
    return own(at::randn(whole(shape), generator_));
  }

 private:
  std::vector<int64_t> whole(at::IntArrayRef shape) const {
    std::vector<int64_t> sizes = shape.vec();
    if (!sizes.empty() && sizes.front() > 1) sizes.front() *= parts_;
    return sizes;
  }
  at::Tensor own(const at::Tensor& all) const {
    if (all.dim() == 0 || all.size(0) == 1) return all;
    const int64_t rows = all.size(0) / parts_;
    return all.narrow(0, part_ * rows, rows).contiguous();
  }

  at::Generator generator_;
  int64_t part_, parts_;
};

// One part of one batch, or all its parts in turn.
class PartBatches : public BatchSource {
 public:
  PartBatches(Batch whole, int64_t first, int64_t items, int64_t in_turn)
      : whole_(std::move(whole)), first_(first), items_(items), in_turn_(in_turn) {}
  Batch batch(int64_t number) override { return whole_.rows(first_ + number % in_turn_ * items_, items_); }

 private:
  Batch whole_;
  int64_t first_, items_, in_turn_;
};

enum class Way {
  whole,
  in_turn,
  ranks
};  // one batch; its halves one after the other; each on a rank of its own

// Two steps; the main rank saves.
void train_recipe(const std::string& name, const VariedRecipe* varied, Way way, Group& group,
                  const std::string& out) {
  Prepared made = prepare(name, kParts * kItems, [&](Schema& settings) {
    settings.set("train.precision", "fp32");
    if (varied != nullptr) varied->apply(settings);
    // SoundStream's gradient penalty is taken over each rank's own batch, see docs/distributed.md.
    if (name == "soundstream") {
      settings.set("gradient_penalty_every", "0");
      // Fewer codes than frames: codes that begin at the same frame are a tie, and what many stages leave of
      // few frames is rounding, which then decides.
      settings.set("model.codec.quantizer.codebook_size", "32");
      settings.set("model.codec.quantizer.quantizers", "2");
    }
    // Small gradients move weights little, so that rounding stays rounding.
    for (const Option& option : settings.options())
      if (option.name().ends_with("optimiser.eps")) settings.set(option.name(), "1e-3");
  });
  made.config.accumulate = way == Way::in_turn ? kParts : 1;
  PartBatches batches(made.batches->batch(0), way == Way::ranks ? group.rank() * kItems : 0,
                      way == Way::whole ? kParts * kItems : kItems, way == Way::in_turn ? kParts : 1);
  TrainerParts parts{*made.task, batches};
  parts.group = &group;
  Trainer trainer(std::move(parts), made.config);
  trainer.set_draws([&](const StepContext& context, int64_t phase) {
    const int64_t part = way == Way::ranks ? group.rank() : context.micro_batch;
    const uint64_t key =
        random_key(9, "part", {static_cast<uint64_t>(context.step), static_cast<uint64_t>(phase)});
    return std::make_unique<DrawsOfOnePart>(key, way == Way::whole ? 0 : part,
                                            way == Way::whole ? 1 : kParts);
  });
  for (int step = 0; step < 2; ++step) EXPECT_FALSE(trainer.step().skipped) << name;
  const Checkpoint state = trainer.checkpoint();
  if (group.main()) save_checkpoint(out, state);
}

// Not a test of its own: one rank of the test below, in a process of its own.
TEST(Helper, OneRankOfEveryRecipe) {
  const char* out = std::getenv("MELETE_TEST_EVERY_RECIPE");
  if (!out) GTEST_SKIP() << "runs only as a process of Ranks.TwoEqualOneForEveryRecipe";
  set_threads(1);
  add_toy();
  DistConfig dist;
  dist.heartbeat_seconds = 0.2;
  Group group(read_place(), dist);
  const auto train = [&](const std::string& label, const std::string& name, const VariedRecipe* varied) {
    SCOPED_TRACE(label);
    const std::string path = fmt::format("{}/{}", out, label);
    if (group.alone()) {
      train_recipe(name, varied, Way::whole, group, path + "-whole.safetensors");
      train_recipe(name, varied, Way::in_turn, group, path + "-in-turn.safetensors");
    } else {
      train_recipe(name, varied, Way::ranks, group, path + "-ranks.safetensors");
    }
  };
  for (const std::string& name : recipe_names()) train(name, name, nullptr);
  for (const VariedRecipe& varied : varied_recipes()) train(varied.label, varied.recipe, &varied);
  group.finish();
}

// Equal to one process with both halves in one batch; or, where a loss is a mean over tokens of which the
// halves have different numbers, to one that takes the halves one after the other (train.accumulate).
TEST_F(Ranks, TwoEqualOneForEveryRecipe) {
  for (const int64_t size : {1, 2}) {
    const int port = free_port();
    for (const Ended& ended :
         run_ranks(size, "/proc/self/exe", {"--gtest_filter=Helper.OneRankOfEveryRecipe"}, folder_,
                   [&](int64_t rank) {
                     Variables variables = rank_of(rank, size, port);
                     variables["MELETE_TEST_EVERY_RECIPE"] = folder_.string();
                     return variables;
                   }))
      ASSERT_EQ(ended.code, 0) << ended.output;
  }
  add_toy();
  std::vector<std::string> names = recipe_names();
  for (const VariedRecipe& varied : varied_recipes()) names.push_back(varied.label);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string path = (folder_ / name).string(), ranks = path + "-ranks.safetensors";
    const double whole = difference(path + "-whole.safetensors", ranks);
    const double in_turn = whole < kRounding ? whole : difference(path + "-in-turn.safetensors", ranks);
    std::printf("%-28s equals %s (%.2g)\n", name.c_str(),
                whole < kRounding ? "the whole batch" : "its halves in turn", in_turn);
    EXPECT_LT(in_turn, kRounding) << "and " << whole << " from the whole batch";
    // Here all rows have as many tokens, and SPEAR-TTS's alignment is taken over the rows of all ranks.
    if (name.starts_with("spear-")) {
      EXPECT_LT(whole, kRounding) << "from the whole batch";
    }
  }
}

// Not a test of its own: one rank of the test below, in a process of its own.
TEST(Helper, OneRankOfANewSystem) {
  const char* out = std::getenv("MELETE_TEST_NEW_SYSTEM");
  if (!out) GTEST_SKIP() << "runs only as a process of Ranks.ANewSystemTrainsInTwo";
  add_toy();
  const Place place = read_place();
  EXPECT_EQ(run_program({"train", "toy-matrix", "--data", std::getenv("MELETE_TEST_DATA"), "--out", out,
                         "--steps", "4", "--threads", "1", "--batch_size", place.alone() ? "4" : "2"}),
            0);
}

// A system that only the test knows, by the command line.
TEST_F(Ranks, ANewSystemTrainsInTwo) {
  for (const int64_t size : {1, 2}) {
    const int port = free_port();
    for (const Ended& ended : run_ranks(size, "/proc/self/exe", {"--gtest_filter=Helper.OneRankOfANewSystem"},
                                        folder_, [&](int64_t rank) {
                                          Variables variables = rank_of(rank, size, port);
                                          variables["MELETE_TEST_NEW_SYSTEM"] =
                                              (folder_ / std::to_string(size)).string();
                                          variables["MELETE_TEST_DATA"] = (shared_ / "music").string();
                                          return variables;
                                        }))
      ASSERT_EQ(ended.code, 0) << ended.output;
  }
  EXPECT_LT(difference(checkpoint(folder_ / "1", 4), checkpoint(folder_ / "2", 4)), kRounding);
  EXPECT_EQ(load_checkpoint(checkpoint(folder_ / "2", 4)).meta["ranks"], 2);
}

}  // namespace dist_recipes_test
}  // namespace melete
