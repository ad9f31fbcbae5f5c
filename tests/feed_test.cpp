// How recipes open their data: what one folder must have in common with another, how long a segment is, and
// what a person is told.
#include "train/feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "dist/group.h"
#include "every_recipe.h"
#include "run/reporter.h"
#include "token_batches.h"

namespace melete {
namespace feed_test {

namespace fs = std::filesystem;
using melete::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kRate = 8000;
constexpr double kPerSecond = 10;

template <class Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A folder of tokens, ten a second, of recordings of 12, 13, ... tokens.
std::string write_tokens(const std::string& folder, const std::string& identity, int64_t count = 6,
                         int64_t rate_hz = kRate) {
  TokenColumns columns;
  columns.list = {{"semantic", identity, 16, 0, kPerSecond, rate_hz}};
  std::vector<std::string> names;
  std::vector<Item> items;
  for (int64_t i = 0; i < count; ++i) {
    names.push_back(fmt::format("{}.wav", i));
    items.push_back(token_item(names.back(), at::arange(12 + i, at::kLong).remainder(16), {}, "words"));
  }
  TokenFolderWriter(folder, columns, names, 64).write(0, items);
  return folder;
}

// Trains on tokens and looks at nothing of them.
class TokensRecipe : public RecordingsRecipe {
 public:
  std::string name() const override { return "tokens"; }
  void settle() override {}
  std::unique_ptr<Task> make_task() override { return nullptr; }
  Batch example(int64_t) override { return {}; }
  Feed open(const OpenRequest& request) override {
    return open_tokens(
        *this,
        [](const TokenColumns& columns, const std::string& folder) {
          columns.require_column("semantic", folder);
        },
        request);
  }
  Feed open_alone() {
    data.workers = 0;
    Reporter silent;
    return open({7, alone_, silent});
  }

 protected:
  void describe_task(Schema&) override {}

 private:
  Group alone_;
};

TEST(Feed, SamplesOfASegmentCountForTokensToo) {
  TemporaryFolder folder;
  TokensRecipe recipe;
  recipe.data_from = write_tokens(folder / "tokens", "one");
  const auto longest = [&] { return recipe.open_alone().training->batch(0)["semantic"].size(1); };
  EXPECT_GT(longest(), 8) << "whole items";
  recipe.data.segment_seconds = 0.8;
  EXPECT_EQ(longest(), 8);
  recipe.data.segment_seconds = 0;
  recipe.data.segment_samples = kRate / 2;  // of what the tokens were made from
  EXPECT_EQ(longest(), 5);
  recipe.data.segment_seconds = 0.8;
  EXPECT_THAT(refusal([&] { recipe.open_alone(); }),
              AllOf(HasSubstr("[data.segment_seconds]"), HasSubstr("0.8 and 4000; set one to 0")));
  recipe.data.segment_seconds = 0;
  recipe.data_from = write_tokens(folder / "of unknown rate", "one", 6, 0);
  EXPECT_THAT(refusal([&] { recipe.open_alone(); }),
              AllOf(HasSubstr("[data.segment_samples]"), HasSubstr("give data.segment_seconds")));
}

TEST(Feed, NothingHeldOutIsSaid) {
  TemporaryFolder folder;
  TokensRecipe recipe;
  recipe.data_from = write_tokens(folder / "tokens", "one");
  recipe.data.valid_fraction = 0;
  const Feed all = recipe.open_alone();
  EXPECT_EQ(all.training_items, 6);
  EXPECT_THAT(all.description, Contains(HasSubstr("training: tokens of 6 recordings")));
  EXPECT_THAT(all.description, Contains(HasSubstr("on the training data, since nothing is held out")));
  EXPECT_EQ(all.validation->batch(0).items(), 4);
  recipe.data.valid_fraction = 0.5;
  const Feed half = recipe.open_alone();
  EXPECT_EQ(half.training_items, 3);
  EXPECT_THAT(half.description, Contains(HasSubstr("validation: tokens of 3 recordings")));
}

TEST(Feed, AnotherFolderMustBeOfTheSameModels) {
  TemporaryFolder folder;
  TokensRecipe recipe;
  recipe.data_from = write_tokens(folder / "tokens", "one");
  recipe.valid_from = write_tokens(folder / "held out", "one", 3);
  const Feed feed = recipe.open_alone();
  EXPECT_EQ(feed.training_items, 6) << "nothing of it is held out";
  EXPECT_THAT(feed.description, Contains(HasSubstr("validation: tokens of 3 recordings")));

  recipe.valid_from = write_tokens(folder / "of another", "two");
  EXPECT_THAT(refusal([&] { recipe.open_alone(); }),
              AllOf(HasSubstr("[valid_from]"), HasSubstr("semantic tokens of " + recipe.valid_from),
                    HasSubstr("another model than those of " + recipe.data_from)));
  recipe.valid_from = folder.path();
  EXPECT_THAT(refusal([&] { recipe.open_alone(); }), HasSubstr("expected a folder of tokens"));
  recipe.valid_from.clear();
  recipe.data_from = folder / "acoustic only";
  TokenColumns columns;
  columns.list = {{"acoustic", "one", 16, 2, kPerSecond, kRate}};
  Item item;
  item.words = {{"path", "0.wav"}, {"text", ""}};
  item.add("acoustic", at::zeros({4, 2}, at::kLong));
  TokenFolderWriter(recipe.data_from, columns, {"0.wav"}, 64).write(0, {item});
  EXPECT_THAT(refusal([&] { recipe.open_alone(); }), HasSubstr("holds no semantic tokens; it has: acoustic"));
}

// By the program, and nothing is left behind.
TEST(Feed, RecipesOfRecordingsRefuseTokensBeforeTheyWriteAnything) {
  add_toy();
  TemporaryFolder folder;
  const std::string tokens = write_tokens(folder / "tokens", "one");
  for (const char* what : {"toy-matrix", "soundstream"}) {
    const std::string out = folder.path() + "/run";
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(run_program({"train", what, "--data", tokens, "--out", out, "--steps", "1", "--threads", "1"}),
              1);
    EXPECT_THAT(
        ::testing::internal::GetCapturedStderr(),
        HasSubstr(fmt::format("{} is a folder of tokens, and `{}` trains on recordings", tokens, what)));
    EXPECT_FALSE(fs::exists(out)) << what;
  }
}

// Batch n is the number n, after a while.
class SlowBatches : public BatchSource {
 public:
  Batch batch(int64_t number) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Batch made;
    made.number = number;
    made.set("x", at::full({1}, number + from_, at::kLong));
    return made;
  }
  void start_from(int64_t item) override { from_ = item; }

 private:
  int64_t from_ = 0;
};

TEST(MappedBatches, TimeIsCountedWhereItIsWaitedFor) {
  const auto sleep = [](int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  };
  MappedBatches mapped(std::make_unique<SlowBatches>(), [&](Batch& batch) {
    sleep(50);
    batch.set("twice", 2 * batch["x"]);
  });
  EXPECT_EQ(mapped.wait_seconds(), 0);
  EXPECT_EQ(mapped.batch(0)["twice"].item<int64_t>(), 0);
  const double first = mapped.wait_seconds();
  EXPECT_GE(first, 0.08) << "the source's time and the map's";
  // The next one is made meanwhile. A machine under load may make it late, but not as late as from nothing.
  sleep(400);
  EXPECT_EQ(mapped.batch(1)["twice"].item<int64_t>(), 2);
  EXPECT_LT(mapped.wait_seconds() - first, 0.08);
  // Another one than the next is made anew.
  sleep(400);
  const double before = mapped.wait_seconds();
  EXPECT_EQ(mapped.batch(7)["twice"].item<int64_t>(), 14);
  EXPECT_GE(mapped.wait_seconds() - before, 0.08);
  mapped.start_from(100);
  EXPECT_EQ(mapped.batch(8)["twice"].item<int64_t>(), 216) << "made ahead for the old place";
}

TEST(MappedBatches, ErrorsOfItsThreadReachTheCaller) {
  MappedBatches mapped(std::make_unique<SlowBatches>(), [](Batch& batch) {
    if (batch.number == 1) fail("[test] no tokens for this one");
  });
  EXPECT_EQ(mapped.batch(0).number, 0);
  EXPECT_THROW(mapped.batch(1), Error);
  EXPECT_EQ(mapped.batch(2).number, 2);
}

TEST(Batch, AMissingColumnIsNamedWithThoseThatAreThere) {
  Batch batch;
  batch.set("wave", at::zeros({2, 3}));
  batch.set(Batch::length_column("wave"), at::full({2}, 3, at::kLong));
  batch.set_words("path", {"a", "b"});
  EXPECT_THAT(refusal([&] { batch["semantic"]; }),
              AllOf(HasSubstr("semantic"), HasSubstr("wave"), HasSubstr("path")));
  EXPECT_THAT(refusal([&] { batch.words("text"); }), AllOf(HasSubstr("text"), HasSubstr("path")));
  EXPECT_FALSE(batch.find("semantic").defined());
  EXPECT_THROW(batch.set("other", at::zeros({3})), Error) << "another number of items";
}

TEST(Batch, IntegersArePaddedWithMinusOneAndFloatsWithZero) {
  Item one, two;
  one.add("ids", at::tensor({1, 2, 3}, at::kLong));
  one.add("rows", at::ones({1, 2}));
  one.add("number", at::scalar_tensor(5., at::kFloat));
  two.add("ids", at::tensor({4}, at::kLong));
  two.add("rows", at::full({3, 2}, 2.), 2);  // its last row is padding already
  two.add("number", at::scalar_tensor(6., at::kFloat));
  const Batch batch = collate({one, two});
  EXPECT_TRUE(batch["ids"].equal(at::tensor({1, 2, 3, 4, -1, -1}, at::kLong).view({2, 3})));
  EXPECT_TRUE(batch.lengths("ids").equal(at::tensor({3, 1}, at::kLong)));
  EXPECT_TRUE(batch["rows"][0].equal(at::cat({at::ones({1, 2}), at::zeros({2, 2})})));
  EXPECT_TRUE(batch.lengths("rows").equal(at::tensor({1, 2}, at::kLong)));
  EXPECT_TRUE(batch["number"].equal(at::tensor({5.f, 6.f})));
  EXPECT_FALSE(batch.has(Batch::length_column("number"))) << "a number has no length";
  const Batch cut = collate({one, two}, Pad::curtail);
  EXPECT_TRUE(cut["ids"].equal(at::tensor({1, 4}, at::kLong).view({2, 1})));
  two.columns.pop_back();
  EXPECT_THROW(collate({one, two}), Error);
}

// Lengths of items are their numbers; items are their numbers, too.
class Lengths : public Dataset {
 public:
  explicit Lengths(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  double length(int64_t index) const override { return static_cast<double>(index); }
  Item draw(uint64_t, uint64_t, int64_t index) override {
    Item item;
    item.add("number", at::scalar_tensor(index, at::kLong));
    return item;
  }

 private:
  int64_t size_;
};

std::vector<int64_t> numbers(BatchSource& source, int64_t number) {
  const at::Tensor row = source.batch(number)["number"].contiguous();
  return {row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel()};
}

TEST(LikeLength, BatchesAreOfNeighboursAndEpochsComplete) {
  constexpr int64_t kItems = 96, kBatch = 4, kPool = 6;
  LoaderConfig config;
  config.workers = 0;
  BatchLoader any(std::make_shared<Lengths>(kItems), config, 3, {kBatch});
  config.like_length = kPool;
  BatchLoader alike(std::make_shared<Lengths>(kItems), config, 3, {kBatch});
  const auto spread = [](const std::vector<int64_t>& row) {
    return *std::max_element(row.begin(), row.end()) - *std::min_element(row.begin(), row.end());
  };
  int64_t spread_any = 0, spread_alike = 0;
  std::vector<std::vector<int64_t>> epochs(2);
  std::vector<int64_t> firsts;
  for (int64_t number = 0; number < 2 * kItems / kBatch; ++number) {
    const auto row = numbers(alike, number);
    EXPECT_TRUE(std::is_sorted(row.begin(), row.end()));
    spread_any += spread(numbers(any, number));
    spread_alike += spread(row);
    auto& epoch = epochs[static_cast<size_t>(number * kBatch / kItems)];
    epoch.insert(epoch.end(), row.begin(), row.end());
    if (number < kPool) firsts.push_back(row.front());
  }
  EXPECT_LT(4 * spread_alike, spread_any);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_FALSE(std::is_sorted(firsts.begin(), firsts.end())) << "short batches always come first";
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (int64_t i = 0; i < kItems; ++i) ASSERT_EQ(epoch[static_cast<size_t>(i)], i);
  }
}

TEST(LikeLength, GoesOnAnywhereWithAnyNumberOfWorkers) {
  LoaderConfig config;
  config.workers = 0;
  config.like_length = 5;
  BatchLoader alone(std::make_shared<Lengths>(37), config, 3, {3});
  config.workers = 3;
  BatchLoader loader(std::make_shared<Lengths>(37), config, 3, {3});
  for (const int64_t number : {0, 1, 2, 11, 12, 13, 30, 4, 1000})
    EXPECT_EQ(numbers(loader, number), numbers(alone, number)) << number;
  // A run that goes on with other batches begins at an item of the stream.
  loader.start_from(21);
  EXPECT_EQ(numbers(loader, 0), numbers(alone, 7));
}

TEST(LikeLength, RanksShareTheBatchOfOneProcess) {
  LoaderConfig config;
  config.workers = 0;
  config.like_length = 4;
  BatchLoader whole(std::make_shared<Lengths>(50), config, 3, {6});
  std::vector<std::unique_ptr<BatchLoader>> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(
        std::make_unique<BatchLoader>(std::make_shared<Lengths>(50), config, 3, BatchShare{2, rank, 3}));
  for (int64_t number = 0; number < 20; ++number) {
    std::vector<int64_t> together;
    for (const auto& rank : ranks)
      for (const int64_t item : numbers(*rank, number)) together.push_back(item);
    EXPECT_EQ(together, numbers(whole, number)) << number;
  }
}

// What it is for: token folders whose items differ in length.
TEST(LikeLength, TokensNeedLessPadding) {
  std::vector<Item> items;
  for (int64_t i = 0; i < 48; ++i)
    items.push_back(token_item(std::to_string(i), at::zeros({5 + (i * 29) % 48}, at::kLong), {}));
  const auto padding = [&](int64_t like_length) {
    LoaderConfig config = no_workers();
    config.like_length = like_length;
    BatchLoader loader(std::make_shared<TokenDataset>(items, token_columns(4, 4, 1, kPerSecond), 0), config,
                       3, {6});
    int64_t padded = 0;
    for (int64_t number = 0; number < 8; ++number)
      padded += loader.batch(number)["semantic"].eq(kPadding).sum().item<int64_t>();
    return padded;
  };
  EXPECT_LT(3 * padding(8), padding(0));
}

}  // namespace feed_test
}  // namespace melete
