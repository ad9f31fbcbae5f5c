// Models between jobs: made once, made anew when their files change, and gone when there is no room.
#include "run/kept_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/temporary_folder.h"

namespace melete {
namespace kept_models_test {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

class KeptModels : public ::testing::Test {
 protected:
  void TearDown() override { keep_models({}); }

  std::string file(const std::string& name, const std::string& content = "weights") {
    const fs::path path = fs::path(folder_.path()) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << content;
    return path.string();
  }
  std::shared_ptr<int> load(const std::string& kind, const std::string& path, const std::string& how = "") {
    return kept_model<std::shared_ptr<int>>(kind, path, how, [&] { return std::make_shared<int>(++made_); });
  }
  static std::vector<std::string> kinds() {
    std::vector<std::string> list;
    for (const KeptModel& model : kept_models()) list.push_back(model.kind);
    return list;
  }

  TemporaryFolder folder_;
  int made_ = 0;
};

TEST_F(KeptModels, AProcessThatWasNotAskedToKeepsNone) {
  const std::string path = file("a");
  EXPECT_NE(load("codec", path), load("codec", path));
  EXPECT_TRUE(kept_models().empty());
}

TEST_F(KeptModels, MadeOnceUntilItsFilesChange) {
  keep_models({.models = 4});
  const std::string path = file("a");
  const auto first = load("codec", path);
  end_job_of_kept_models();
  EXPECT_EQ(load("codec", path), first);
  EXPECT_NE(load("codec", path, "online"), first);  // other weights of the same file
  EXPECT_EQ(
      (kept_model<std::shared_ptr<double>>("codec", path, "", [] { return std::make_shared<double>(2); })),
      (kept_model<std::shared_ptr<double>>("codec", path, "", [] { return std::make_shared<double>(3); })));
  file("a", "other weights");
  const auto again = load("codec", path);
  EXPECT_NE(again, first);
  EXPECT_EQ(load("codec", path), again);
  // A run is its checkpoints: what else it writes at every step is not.
  const std::string run = (fs::path(folder_.path()) / "run").string();
  file("run/checkpoints/step_1.safetensors");
  const auto at_one = load("coarse", run);
  file("run/metrics.jsonl", "{}");
  EXPECT_EQ(load("coarse", run), at_one);
  file("run/checkpoints/step_2.safetensors");
  EXPECT_NE(load("coarse", run), at_one);
}

TEST_F(KeptModels, OneOfAKindOrAsManyAsAJobTakes) {
  keep_models({.models = 10});
  const std::string a = file("a"), b = file("b"), c = file("c");
  const auto first = load("codec", a), second = load("codec", b);  // one job, two of them
  end_job_of_kept_models();
  EXPECT_EQ(load("codec", a), first);
  EXPECT_EQ(load("codec", b), second);
  end_job_of_kept_models();
  load("vocoder", a);
  load("codec", c);
  end_job_of_kept_models();
  EXPECT_THAT(kinds(), ::testing::ElementsAre("codec", "vocoder"));
  EXPECT_NE(load("codec", a), first);
}

TEST_F(KeptModels, TheLongestUnusedGoWhenThereIsNoRoom) {
  keep_models({.models = 2});
  const std::string path = file("a", std::string(600, 'x'));
  for (const char* kind : {"one", "two", "three"}) load(kind, path);
  EXPECT_EQ(kept_models().size(), 3u);  // a job has all that it needs
  end_job_of_kept_models();
  EXPECT_THAT(kinds(), ::testing::ElementsAre("three", "two"));
  load("two", path);
  end_job_of_kept_models();
  load("four", path);
  end_job_of_kept_models();
  EXPECT_THAT(kinds(), ::testing::ElementsAre("four", "two"));
  // These hold no tensors: their files' sizes stand for them.
  EXPECT_EQ(kept_models()[0].bytes, 600);
  keep_models({.models = 10, .bytes = 1000});
  end_job_of_kept_models();
  EXPECT_THAT(kinds(), ::testing::ElementsAre("four"));
}

TEST_F(KeptModels, OneThatCannotBeMadeIsNotKept) {
  keep_models({.models = 2});
  const std::string path = file("a");
  const auto broken = [&] {
    kept_model<std::shared_ptr<int>>("codec", path, "", []() -> std::shared_ptr<int> { throw 1; });
  };
  EXPECT_ANY_THROW(broken());
  EXPECT_TRUE(kept_models().empty());
}

}  // namespace kept_models_test
}  // namespace melete
