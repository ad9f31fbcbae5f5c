#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "studio/curves.h"
#include "studio/run_files.h"
#include "studio/run_folder.h"
#include "studio/run_index.h"
#include "studio/run_metrics.h"

namespace melete {
namespace run_metrics_test {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

struct Followed {
  TemporaryFolder folder;
  fs::path path = fs::path(folder.path()) / "metrics.jsonl";
  RunMetrics metrics{path.string()};

  bool poll() { return metrics.poll(1 << 20); }
};

TEST(RunMetrics, FollowsAFileThatGrowsInPieces) {
  Followed run;
  EXPECT_FALSE(run.poll());  // not there yet
  append(run.path, start_row(100));
  const std::string row = step_row(1, 1001, "3.5");
  append(run.path, row.substr(0, 40));
  EXPECT_TRUE(run.poll());
  EXPECT_EQ(run.metrics.steps().rows(), 0u);  // half a row is none
  append(run.path, row.substr(40));
  EXPECT_TRUE(run.poll());
  EXPECT_FALSE(run.poll());
  ASSERT_EQ(run.metrics.steps().rows(), 1u);
  EXPECT_FLOAT_EQ(run.metrics.steps().columns.at("loss/loss")[0], 3.5f);
  EXPECT_EQ(run.metrics.progress().steps_total, 100);
  EXPECT_EQ(run.metrics.progress().task, "soundstream");
  EXPECT_DOUBLE_EQ(run.metrics.progress().chance_levels.at("loss"), 5.5);
  EXPECT_NEAR(run.metrics.progress().data_wait_share, 0.2, 1e-9);
}

TEST(RunMetrics, ReadsAnewWhatWasCutOrReplaced) {
  Followed run;
  append(run.path, start_row(100));
  for (int step = 1; step <= 10; ++step) append(run.path, step_row(step, 1000 + step, "1"));
  run.poll();
  EXPECT_EQ(run.metrics.steps().rows(), 10u);
  // A resumed run writes its rows up to the checkpoint under a new inode.
  const fs::path other = run.path.string() + ".new";
  append(other, start_row(100) + step_row(1, 1001, "1") + step_row(2, 1002, "1"));
  fs::rename(other, run.path);
  EXPECT_TRUE(run.poll());
  EXPECT_EQ(run.metrics.steps().rows(), 2u);
  fs::resize_file(run.path, 0);
  EXPECT_TRUE(run.poll());
  EXPECT_EQ(run.metrics.steps().rows(), 0u);
}

TEST(RunMetrics, PausesAreNotTraining) {
  Followed run;
  append(run.path, start_row(100, 1000) + step_row(1, 1010, "1"));
  append(run.path, start_row(100, 90000) + step_row(2, 90005, "1"));  // a day later
  run.poll();
  EXPECT_DOUBLE_EQ(run.metrics.steps().seconds.back(), 15);
  EXPECT_EQ(run.metrics.progress().starts, 2);
}

TEST(RunMetrics, NumbersThatAreNoneAreCountedAndNotDrawn) {
  Followed run;
  append(run.path, start_row(10) + step_row(1, 1001, "\"nan\"") + step_row(2, 1002, "\"-inf\"") +
                       step_row(3, 1003, "2"));
  append(run.path, "this is no row\n{\"kind\":7}\n\n[1]\n");
  run.poll();
  EXPECT_EQ(run.metrics.unreadable_rows(), 3);
  const auto [table, column] = run.metrics.find("loss/loss");
  ASSERT_TRUE(column);
  const Curve curve = make_curve(*table, *column, {});
  EXPECT_EQ(curve.not_finite, 2);
  EXPECT_EQ(curve.x, std::vector<double>{3});
}

TEST(RunMetrics, GradientNormsHaveZScoresAgainstThoseBefore) {
  Followed run;
  append(run.path, start_row(100));
  for (int step = 1; step <= 40; ++step)
    append(run.path, step_row(step, 1000 + step, "1", step % 2 ? "0.9" : "1.1"));
  append(run.path, step_row(41, 1041, "1", "2.0"));
  run.poll();
  const auto& scores = run.metrics.steps().columns.at("gradient_z/generator");
  EXPECT_NEAR(scores.back(), 10, 0.1);  // mean 1, deviation 0.1
  EXPECT_NEAR(scores[30], -1, 0.1);
}

TEST(RunMetrics, KnowsWhatWasExpectedAndWhenStepsComeUp) {
  Followed run;
  append(run.path, start_row(100));
  for (int step = 1; step <= 10; ++step) append(run.path, step_row(step, 1000 + 2 * step, "1"));
  run.poll();
  EXPECT_TRUE(run.metrics.progress().expected.empty());
  std::string row = step_row(11, 1022, "1");
  row.insert(row.rfind('}'), R"(,"expected":{"loss":[0.5,1.5],"odd":7})");
  append(run.path, row);
  run.poll();
  const auto& expected = run.metrics.progress().expected;
  ASSERT_EQ(expected.size(), 1u);
  EXPECT_EQ(expected.at("loss"), std::pair(0.5, 1.5));
  // 2 s a step; the last two are still ahead.
  EXPECT_EQ(run.metrics.seconds_at({1, 5, 11, 12, 21}), (std::vector<double>{2, 10, 22, 24, 42}));
}

TEST(RunMetrics, ALineWithoutEndDoesNotFillTheMemory) {
  Followed run;
  append(run.path, std::string(8 << 20, 'x'));
  while (!run.metrics.caught_up()) run.poll();
  append(run.path, "\n" + step_row(1, 1001, "1"));
  run.poll();
  EXPECT_EQ(run.metrics.steps().rows(), 1u);
}

TEST(Curves, ASpikeOfOneStepInAHundredThousandIsSeen) {
  MetricTable table;
  for (int64_t step = 1; step <= 100000; ++step) {
    table.add_row(step, static_cast<double>(step));
    table.set("loss/x", step == 54321 ? 1000.0f : 1.0f);
  }
  const Curve curve = make_curve(table, table.columns["loss/x"], {.points = 500});
  EXPECT_LE(curve.x.size(), 500u);
  EXPECT_GT(curve.x.size(), 450u);
  EXPECT_EQ(*std::max_element(curve.high.begin(), curve.high.end()), 1000.0f);
  EXPECT_TRUE(std::is_sorted(curve.x.begin(), curve.x.end()));
  const Curve part = make_curve(table, table.columns["loss/x"], {.from = 54300, .to = 54340, .points = 500});
  ASSERT_EQ(part.x.size(), 41u);  // the rows themselves
  EXPECT_EQ(part.mean[21], 1000.0f);
  EXPECT_EQ(curve_json(part).find("\"low\""), std::string::npos);
}

TEST(Curves, StepsThatWereMadeAgainStandOnce) {
  MetricTable table;
  for (const auto& [step, value] :
       std::vector<std::pair<int64_t, float>>{{1, 1.f}, {2, 2.f}, {3, 9.f}, {2, 5.f}, {3, 6.f}}) {
    table.add_row(step, 0);
    table.set("a", value);
  }
  const Curve curve = make_curve(table, table.columns["a"], {});
  EXPECT_EQ(curve.x, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(curve.mean, (std::vector<float>{1, 5, 6}));
}

TEST(RunIndex, FindsRunsAndSaysHowTheyAre) {
  TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path());
  make_run(root / "a", 5);
  make_run(root / "deep" / "b", 3);
  fs::create_directories(root / "studio" / "made");
  make_run(root / "studio" / "made" / "no", 1);  // what the studio made is no run of its own
  fs::create_directory_symlink("/", root / "outside");
  RunIndex index(root);
  index.look();
  EXPECT_EQ(index.ids(), (std::vector<std::string>{"a", "deep/b"}));
  const auto a = index.summary("a");
  EXPECT_EQ(a["state"], "finished");
  EXPECT_EQ(a["step"], 5);
  EXPECT_EQ(a["losses"]["loss"], 2.0);
  EXPECT_EQ(a["spark"].size(), 5u);
  EXPECT_EQ(index.details("a")["config"]["model"]["channels"], 16);
  EXPECT_TRUE(index.summary("none").is_null());
  const uint64_t before = index.wait(0, 0);
  EXPECT_TRUE(index.changed(before)["runs"].empty());
  append(root / "a" / "metrics.jsonl", step_row(6, 3000, "1"));
  index.look();
  EXPECT_EQ(index.changed(before)["runs"].size(), 1u);
}

TEST(RunIndex, StatesFollowFromRowsAndClock) {
  RunProgress progress;
  progress.heard_time = 1000;
  progress.steps_total = 10;
  progress.step = 4;
  EXPECT_EQ(run_state(progress, 1010), "running");
  EXPECT_EQ(run_state(progress, 5000), "silent");
  progress.finished_reason = "stopped after step 4";
  EXPECT_EQ(run_state(progress, 1010), "stopped");
  progress.finished_reason = "3 steps in a row were not finite";
  EXPECT_EQ(run_state(progress, 1010), "failed");
  progress.step = 10;
  progress.finished_reason = "done";
  EXPECT_EQ(run_state(progress, 1010), "finished");
}

// The rows of a machine whose clock is five minutes behind or ahead: what counts is when they came.
TEST(RunIndex, AnotherMachinesClockMayBeWrong) {
  for (const double wrong : {-300.0, 300.0}) {
    TemporaryFolder folder;
    const fs::path root = fs::canonical(folder.path()), rows = root / "a" / "metrics.jsonl";
    fs::create_directories(root / "a");
    const double now = static_cast<double>(std::time(nullptr)) + wrong;
    append(rows, start_row(100, now));
    for (int64_t step = 1; step <= 20; ++step)
      append(rows, step_row(step, now + static_cast<double>(step) / 100, "1"));
    {
      RunIndex index(root);
      index.look();
      EXPECT_EQ(index.summary("a")["state"], "running") << wrong;
    }
    // Whoever trained has been silent for five minutes, whatever the rows say.
    fs::last_write_time(rows, fs::file_time_type::clock::now() - std::chrono::minutes(5));
    RunIndex index(root);
    index.look();
    EXPECT_EQ(index.summary("a")["state"], "silent") << wrong;
    append(rows, step_row(21, now + 1, "1"));
    index.look();
    EXPECT_EQ(index.summary("a")["state"], "running") << wrong;
  }
}

TEST(RunFiles, SamplesAreGroupedByItemAndLabel) {
  TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path()), run = make_run(root / "a", 5);
  write_tone(run / "samples" / "step_00000009" / "0_piece_ema.flac", 0.1);
  append(run / "samples" / "step_00000009" / "notes.txt", "words");
  fs::create_symlink("/etc/hostname", run / "samples" / "step_00000009" / "leak.txt");
  const auto items = run_samples(root, run);
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0]["item"], "0_piece");
  EXPECT_EQ(items[0]["kind"], "audio");
  ASSERT_EQ(items[0]["versions"].size(), 4u);
  EXPECT_EQ(items[0]["versions"][3]["label"], "ema");
  EXPECT_EQ(items[0]["versions"][3]["step"], 9);
  EXPECT_EQ(items[0]["versions"][3]["path"], "a/samples/step_00000009/0_piece_ema.flac");
  EXPECT_EQ(items[1]["kind"], "text");
}

}  // namespace run_metrics_test
}  // namespace melete
