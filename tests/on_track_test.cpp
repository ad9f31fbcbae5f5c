// Whether a run says that it is off its track: tables of what to expect, what they are made from, and what is
// said of figures and samples that cannot be right.
#include "train/on_track.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "every_recipe.h"
#include "run/figure_names.h"
#include "run/measured_runs.h"
#include "run/sample_faults.h"
#include "toy_task.h"
#include "train/one_batch.h"

namespace melete {
namespace on_track_test {

using namespace toy;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Expectation some_table() {
  Expectation table;
  table.task = "toy";
  table.data = "dice \"seven\"";
  table.machine = "an abacus";
  table.steps = 300;
  table.runs = 2;
  table.main = {"mel_distance", true};
  table.label = "ema";
  table.unlike = {"batch_size 2 instead of 4"};
  table.training["generator.loss"] = {{100, {3, 4}}, {300, {1, 1.5}}};
  table.validation["t 0.00-0.25"] = {{100, {-2, -1.25}}};
  table.validation["mel_distance"] = {{100, {1e-7, 1e5}}};
  return table;
}

TEST(OnTrack, ATableIsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a.expect.toml";
  const Expectation table = some_table();
  std::ofstream(path) << expectation_text(table);
  const Expectation read = read_expectation(path);
  EXPECT_EQ(expectation_text(read), expectation_text(table));
  EXPECT_EQ(read.data, table.data);
  EXPECT_EQ(read.unlike, table.unlike);
  EXPECT_TRUE(read.main.higher_is_better);
  EXPECT_EQ(read.validation.at("t 0.00-0.25").at(100).high, -1.25);
  EXPECT_EQ(read.validation.at("mel_distance").at(100).low, 1e-7);
}

TEST(OnTrack, BetweenRowsALineAndOutsideNothing) {
  const auto& side = some_table().training;
  EXPECT_FALSE(Expectation::at(side, "generator.loss", 99));
  EXPECT_FALSE(Expectation::at(side, "generator.loss", 301));
  EXPECT_FALSE(Expectation::at(side, "another", 100));
  EXPECT_EQ(Expectation::at(side, "generator.loss", 100)->low, 3);
  EXPECT_NEAR(Expectation::at(side, "generator.loss", 150)->low, 2.5, 1e-12);
  EXPECT_NEAR(Expectation::at(side, "generator.loss", 150)->high, 3.375, 1e-12);
  EXPECT_EQ(Expectation::at(side, "generator.loss", 300)->high, 1.5);
}

TEST(OnTrack, ABrokenTableIsRefusedByName) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/b.expect.toml";
  for (const char* text :
       {"", "data = 3\n", "[training.loss]\nten = [1, 2]\n", "[training.loss]\n10 = [2, 1]\n",
        "[training.loss]\n10 = 1\n", "[validation.loss]\n10 = [1, nan]\n", "[training]\nloss = 3\n",
        "[training.loss\n", "[training.loss]\n-5 = [1, 2]\n"}) {
    std::ofstream(path) << text;
    try {
      read_expectation(path);
      ADD_FAILURE() << "was read: " << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("b.expect.toml")) << text;
    }
  }
}

TEST(OnTrack, TablesStandBesideRecipesAndAreNone) {
  EXPECT_EQ(expectation_beside("recipes/soundstream/tiny.toml"), "recipes/soundstream/tiny.expect.toml");
  EXPECT_TRUE(is_expectation_file("recipes/soundstream/tiny.expect.toml"));
  EXPECT_FALSE(is_expectation_file("recipes/soundstream/tiny.toml"));
}

// Rows of metrics.jsonl as a run of 40 steps writes them, `shift` apart.
std::string written_run(const std::string& folder, const std::string& name, double shift,
                        int64_t steps = 40) {
  const std::string path = folder + "/" + name;
  std::filesystem::create_directories(path);
  std::ofstream out(path + "/metrics.jsonl");
  out << R"({"kind":"start","step":0,"task":"toy","data":["training: 3 files"],"main_figure":"psnr",)"
      << R"("higher_is_better":true})"
      << "\n";
  for (int64_t step = 1; step <= steps; ++step) {
    const double loss = 10.0 / static_cast<double>(step) + shift + 0.01 * static_cast<double>(step % 2);
    out << fmt::format(R"({{"kind":"step","step":{},"losses":{{"loss":{},"part":1}},"seconds":0.5}})", step,
                       loss)
        << "\n";
    if (step % 10 == 0)
      for (const char* label : {"online", "ema"})
        out << fmt::format(
                   R"({{"kind":"validation","step":{},"label":"{}","losses":{{"loss":{},"psnr":{},"code_use_1":1}}}})",
                   step, label, loss + 1, (label[0] == 'e' ? 20 : 10) + shift)
            << "\n";
  }
  out << R"({"kind":"step","step":41,"losses":{"los)";  // cut by a kill
  return path;
}

TEST(OnTrack, RunsBecomeATableThatHoldsThem) {
  const TemporaryFolder folder;
  const std::vector<std::string> runs = {written_run(folder.path, "a", 0),
                                         written_run(folder.path, "b", 0.5)};
  const Expectation both = measure_runs(runs, "", "here");
  EXPECT_EQ(both.task, "toy");
  EXPECT_EQ(both.data, "training: 3 files");
  EXPECT_EQ(both.main.name, "psnr");
  EXPECT_TRUE(both.main.higher_is_better);
  EXPECT_EQ(both.label, "ema");
  EXPECT_EQ(both.steps, 40);
  EXPECT_EQ(both.runs, 2);
  EXPECT_EQ(both.step_seconds, 0.5);
  EXPECT_EQ(both.validation.count("code_use_1"), 0u) << "one of many";
  EXPECT_EQ(both.training.count("part"), 0u) << "no total";
  ASSERT_THAT(both.validation.at("psnr"), SizeIs(4));
  // Of the averaged weights, both runs inside, and half as far again.
  EXPECT_NEAR(both.validation.at("psnr").at(10).low, 20 - 0.41, 1e-6);
  EXPECT_NEAR(both.validation.at("psnr").at(10).high, 20.5 + 0.41, 1e-6);
  EXPECT_NEAR(both.validation.at("loss").at(40).low, 1.25 - 0.25, 1e-6);
  EXPECT_NEAR(both.validation.at("loss").at(40).high, 1.75 + 0.25, 1e-6);
  // A training loss is the mean of the last steps.
  double mean = 0;
  for (int step = 25; step <= 40; ++step) mean += (10.0 / step + 0.01 * (step % 2)) / 16;
  EXPECT_NEAR(both.training.at("loss").at(40).low, mean - 0.25, 1e-6);

  // One run alone is a band as well, and not an empty one.
  const Expectation one = measure_runs({runs[0]}, "words", "here");
  EXPECT_EQ(one.data, "words");
  for (const auto* side : {&one.training, &one.validation})
    for (const auto& [name, rows] : *side)
      for (const auto& [step, band] : rows)
        EXPECT_GT(band.high - band.low, 0.05 * std::abs(band.high)) << name;

  EXPECT_THROW(measure_runs({runs[0], written_run(folder.path, "c", 0, 30)}, "", ""), Error);
  EXPECT_THROW(measure_runs({folder.path + "/none"}, "", ""), Error);
}

// Long runs have few rows, the last step among them.
TEST(OnTrack, LongRunsAreThinnedOut) {
  const TemporaryFolder folder;
  const Expectation table = measure_runs({written_run(folder.path, "a", 0, 1230)}, "", "");
  EXPECT_LE(table.validation.at("loss").size(), 10u);
  EXPECT_EQ(table.validation.at("loss").rbegin()->first, 1230);
  EXPECT_EQ(table.training.at("loss").rbegin()->first, 1230);
}

struct Listener : Recorder {
  void note(const std::string& text) override { notes.push_back(text); }
  std::vector<std::string> notes;
};

ValidationReport validated(int64_t step, double loss) {
  ValidationReport report;
  report.step = step;
  report.label = "online";
  report.losses = {{"loss", loss}};
  return report;
}

TEST(OnTrack, FarOffIsSaidOnceInWordsAndTakenBack) {
  Expectation table;
  table.data = "speech";
  table.label = "online";
  table.unlike = {"batch_size 2 instead of 4"};
  table.validation["loss"] = {{100, {1.3, 1.6}}, {400, {1.3, 1.6}}};
  Listener heard;
  OnTrack on_track(table, {}, heard);
  const auto at = [&](int64_t step, double loss) {
    ValidationReport report = validated(step, loss);
    report.chance_levels = {{"loss", 2.1}};
    on_track.expect(report);
    EXPECT_EQ(report.expected.count("loss"), step >= 100 ? 1u : 0u);
    on_track.judge(report);
  };
  at(50, 9);     // before the table begins
  at(100, 1.8);  // outside, not far
  EXPECT_THAT(heard.warnings, IsEmpty());
  at(200, 2.1);
  at(300, 2.2);
  ASSERT_THAT(heard.warnings, SizeIs(1));
  EXPECT_THAT(heard.warnings[0],
              AllOf(HasSubstr("validation loss 2.1000 at step 200, expected 1.3000 to 1.6000 on speech"),
                    HasSubstr("batch_size 2 instead of 4"), HasSubstr("guessing gives (2.1000)"),
                    HasSubstr("data check")));
  EXPECT_THAT(heard.notes, IsEmpty());
  at(400, 1.5);
  ASSERT_THAT(heard.notes, SizeIs(1));
  EXPECT_THAT(heard.notes[0], HasSubstr("on track again"));
  at(400, 2.2);
  EXPECT_THAT(heard.warnings, SizeIs(2));
  // Weights that were not measured are not judged.
  ValidationReport other = validated(200, 9);
  other.label = "ema";
  on_track.expect(other);
  EXPECT_THAT(other.expected, IsEmpty());
}

TEST(OnTrack, BetterThanExpectedIsNothingToSay) {
  Expectation table;
  table.label = "online";
  table.validation["psnr"] = {{1, {20, 22}}};
  Listener heard;
  OnTrack on_track(table, {"psnr", true}, heard);
  for (const double psnr : {40.0, 21.0, 19.0, 17.0}) {
    ValidationReport report = validated(1, 0);
    report.losses = {{"loss", 1}, {"psnr", psnr}};
    on_track.expect(report);
    on_track.judge(report);
    EXPECT_EQ(heard.warnings.size(), psnr < 18 ? 1u : 0u) << psnr;
  }
}

// A band that is wider than the way to chance must not hide a model that has learned nothing.
TEST(OnTrack, WhatGuessingGivesIsFarOffHoweverWideTheBand) {
  Expectation table;
  table.label = "online";
  table.validation["loss"] = {{1, {4.8, 5.2}}};
  table.validation["psnr"] = {{1, {12, 20}}};
  for (const bool guesses : {false, true}) {
    Listener heard;
    OnTrack on_track(table, {"psnr", true}, heard);
    ValidationReport report = validated(1, guesses ? 5.54 : 5.3);
    report.losses.emplace_back("psnr", guesses ? 10.0 : 11.5);
    report.chance_levels = {{"loss", 5.545}, {"psnr", 10}};
    on_track.expect(report);
    on_track.judge(report);
    EXPECT_THAT(heard.warnings, SizeIs(guesses ? 2 : 0));
  }
}

// The trainer shows what it expects and judges the mean of its last steps.
TEST(OnTrack, ARunSaysThatItIsOff) {
  for (const bool off : {false, true}) {
    Expectation table;
    table.label = "ema";
    table.data = "numbers";
    const Band unreachable{1e-6, 2e-6}, anything{-10, 10};
    table.training["generator.loss"] = {{10, off ? unreachable : anything}, {20, anything}};
    table.validation["distance"] = {{10, off ? unreachable : anything}, {20, anything}};
    ToyTask task;
    ToySource source, held_out(3, 6);
    Listener heard;
    TrainerParts parts{task, source};
    parts.validation = &held_out;
    parts.reporter = &heard;
    parts.expectation = table;
    TrainerConfig config = small_config(20);
    config.validate_every = 10;
    Trainer trainer(std::move(parts), config);
    std::atomic<bool> stop{false};
    trainer.run(stop);
    ASSERT_THAT(heard.steps, SizeIs(20));
    EXPECT_THAT(heard.steps[8].expected, IsEmpty());
    EXPECT_EQ(heard.steps[9].expected.count("generator.loss"), 1u);
    EXPECT_EQ(heard.steps[14].expected.count("generator.loss"), 1u);
    ASSERT_THAT(heard.validations, SizeIs(4));
    EXPECT_THAT(heard.validations[0].expected, IsEmpty()) << "online, and the table is of the average";
    EXPECT_EQ(heard.validations[1].expected.count("distance"), 1u);
    EXPECT_THAT(heard.about.expected, Not(IsEmpty()));
    EXPECT_EQ(heard.warnings.size(), off ? 1u : 0u);
    if (off) {
      EXPECT_THAT(heard.warnings.at(0), HasSubstr("training generator.loss"));
      EXPECT_THAT(heard.notes, SizeIs(1)) << "at step 20 it is on track again";
    }
  }
}

StepReport opposed(int64_t step, double guessing, double winning, double alive) {
  StepReport report;
  report.step = step;
  report.losses = {{"generator.loss", 2.0}, {"stft", guessing}, {"scale:1", winning}, {"scale:0.5", alive}};
  report.opponent_losses = {"stft", "scale:1", "scale:0.5"};
  for (const std::string& name : report.opponent_losses) report.chance_levels[name] = 2;
  report.chance_levels["generator.loss"] = 2;
  return report;
}

TEST(OnTrack, DiscriminatorsThatGuessOrHaveWonAreNamedOnce) {
  Listener heard;
  OnTrack on_track({}, {}, heard);
  for (int64_t step = 1; step <= 127; ++step) on_track.judge(opposed(step, 2.0, 0.001, 1.5));
  EXPECT_THAT(heard.warnings, IsEmpty()) << "too early to say";
  for (int64_t step = 128; step <= 400; ++step) on_track.judge(opposed(step, 2.0, 0.001, 1.5));
  ASSERT_THAT(heard.warnings, SizeIs(2));
  EXPECT_THAT(heard.warnings[0], AllOf(HasSubstr("`stft` is dead"), HasSubstr("guessing gives 2.0000")));
  EXPECT_THAT(heard.warnings[1], HasSubstr("`scale:1` has won"));
}

TEST(OnTrack, CollapsedCodebooksAreNamedAndOtherPerplexitiesAreNot) {
  Listener heard;
  OnTrack on_track({}, {}, heard);
  ValidationReport report = validated(10, 1);
  report.losses.emplace_back("perplexity", 1.01);  // of a language model that knows its text
  on_track.judge(report);
  EXPECT_THAT(heard.warnings, IsEmpty());
  report.losses = {{"perplexity", 60}, {"code_use", 0.4}, {"perplexity_1", 80}, {"perplexity_2", 1.2}};
  on_track.judge(report);
  on_track.judge(report);
  ASSERT_THAT(heard.warnings, SizeIs(1));
  EXPECT_THAT(heard.warnings[0], HasSubstr("codebook 2 has collapsed at step 10"));
}

TEST(OnTrack, FaultsOfSound) {
  std::vector<float> sound(8000);
  for (size_t i = 0; i < sound.size(); ++i) sound[i] = 0.5f * std::sin(0.05f * static_cast<float>(i));
  const auto changed = [&](const auto& change) {
    std::vector<float> other = sound;
    for (float& value : other) value = change(value);
    return fault_of_sound(other);
  };
  EXPECT_EQ(fault_of_sound(sound), "");
  EXPECT_EQ(changed([](float v) { return 1e-5f * v; }), "silent");
  EXPECT_EQ(changed([](float v) { return 0.3f + 1e-5f * v; }), "constant");
  EXPECT_THAT(changed([](float v) { return std::clamp(4 * v, -1.0f, 1.0f); }), HasSubstr("clipped ("));
  EXPECT_EQ(changed([](float v) { return v > 0.499f ? std::nanf("") : v; }), "not finite");
  EXPECT_EQ(changed([](float v) { return 1.99f * v; }), "") << "loud is not clipped";
}

TEST(OnTrack, FaultsOfPictures) {
  const at::Tensor noise = at::rand({4, 3, 8, 8});
  EXPECT_EQ(fault_of_pictures(noise), "");
  EXPECT_THAT(fault_of_pictures(at::full({4, 3, 8, 8}, 0.5) + 0.001 * noise),
              HasSubstr("all of them the same"));
  EXPECT_EQ(fault_of_pictures(at::rand({4, 3, 1, 1}).expand({4, 3, 8, 8})), "each of one colour");
}

TEST(OnTrack, SamplesAreLookedAtAndBlamedOnce) {
  const TemporaryFolder folder;
  Listener heard;
  Alarms alarms(heard);
  const at::Tensor tone = 0.3 * at::sin(at::arange(4000) * 0.1), silence = at::zeros({4000});
  {
    SampleWriter writer(folder.path, 1, heard, &alarms);
    writer.original("0_quiet", silence, 8000);
    writer.original("1_loud", tone, 8000);
    writer.audio("0_quiet_ema", silence, 8000);  // as it was given
    EXPECT_THAT(heard.warnings, ElementsAre(HasSubstr("the recording 0_quiet")));
    writer.audio("1_loud_ema", silence, 8000);
    writer.picture_pairs("pictures", at::rand({2, 3, 4, 4}), at::zeros({2, 3, 4, 4}));
  }
  SampleWriter later(folder.path, 2, heard, &alarms);
  later.audio("1_loud_ema", silence, 8000);
  ASSERT_THAT(heard.warnings, SizeIs(3));
  EXPECT_THAT(heard.warnings[1], AllOf(HasSubstr("1_loud_ema of step 1"), HasSubstr("silent")));
  EXPECT_THAT(heard.warnings[2], AllOf(HasSubstr("pictures of step 1"), HasSubstr("of one colour")));
}

TEST(OnTrack, OneBatchIsLearnedByHeartOrNot) {
  Settings plain;
  plain.adversarial = plain.draws = plain.buffers = false;
  plain.schedule.warmup_steps = 1000000;  // such a warm-up must not decide
  const auto tried = [&](double rate_scale) {
    struct Slowed : ToyTask {
      using ToyTask::ToyTask;
      std::vector<Phase> phases() override {
        auto all = ToyTask::phases();
        for (Phase& phase : all) phase.optimiser.learning_rate *= scale;
        return all;
      }
      double scale = 1;
    } task(plain);
    task.scale = rate_scale;
    ToySource source;
    Listener heard;
    std::atomic<bool> stop{false};
    const OneBatchResult result = overfit_one_batch(task, source, small_config(100), heard, stop);
    EXPECT_THAT(source.asked, ElementsAre(0)) << "one batch";
    EXPECT_EQ(heard.steps.size(), 100u);
    EXPECT_THAT(heard.saves, IsEmpty());
    return result;
  };
  const OneBatchResult learned = tried(1), not_learned = tried(1e-9);
  EXPECT_EQ(learned.verdict, OneBatchResult::learned) << learned.words;
  EXPECT_LT(learned.after, learned.before);
  EXPECT_THAT(learned.words, AllOf(HasSubstr("in 100 steps"), HasSubstr("it learns;")));
  EXPECT_EQ(not_learned.verdict, OneBatchResult::nothing) << not_learned.words;
  EXPECT_THAT(not_learned.words, HasSubstr("it learns nothing"));
}

// A task that begins far worse than guessing and comes down to it has learned nothing.
TEST(OnTrack, ComingDownToChanceIsNoLearning) {
  struct Guesser : ToyTask {
    using ToyTask::ToyTask;
    std::vector<Phase> phases() override {
      auto all = ToyTask::phases();
      const auto loss = all[0].loss;
      all[0].loss = [loss](const Batch& batch, const StepContext& context) {
        Losses losses = loss(batch, context);
        losses.chance = {{"loss", losses.total.detach() * 1.001}};
        return losses;
      };
      return all;
    }
  };
  Settings plain;
  plain.adversarial = plain.draws = plain.buffers = false;
  Guesser task(plain);
  ToySource source;
  Listener heard;
  std::atomic<bool> stop{false};
  const OneBatchResult result = overfit_one_batch(task, source, small_config(100), heard, stop);
  EXPECT_LT(result.after, 0.8 * result.before);
  EXPECT_EQ(result.verdict, OneBatchResult::nothing) << result.words;
}

// Chance levels stand beside figures that are there, and every recipe with a loss that can be guessed has
// one.
TEST(OnTrack, ChanceLevelsBelongToFiguresInEveryRecipe) {
  add_toy();
  for (const std::string& recipe : recipe_names()) {
    SCOPED_TRACE(recipe);
    Prepared made = prepare(recipe, 4, [](Schema& schema) { schema.set("train.ema.enabled", "false"); });
    TrainerParts parts{*made.task, *made.batches};
    parts.validation = made.batches.get();
    made.config.validate_batches = 1;
    Trainer trainer(std::move(parts), made.config);
    const StepReport step = trainer.step();
    const ValidationReport validation = trainer.validate().front();
    std::map<std::string, double> levels = step.chance_levels;
    for (const auto& [name, level] : validation.chance_levels) levels[name] = level;
    const auto there = [&](const std::string& name) {
      for (const auto* figures : {&step.losses, &validation.losses})
        for (const auto& figure : *figures)
          if (figure.first == name) return true;
      return false;
    };
    for (const auto& [name, level] : levels) {
      EXPECT_TRUE(std::isfinite(level) && level > 0) << name << " " << level;
      // A batch of four need not have figures of every share that was hidden.
      EXPECT_TRUE(there(name) || is_one_of_many(name)) << "chance of " << name << ", and no such figure";
    }
    EXPECT_TRUE(there(made.task->main_figure().name)) << made.task->main_figure().name;
    // A codec without discriminators, a vocoder without them and the toy have nothing to guess.
    const bool nothing_to_guess = recipe == "soundstream" || recipe == "vocos" || recipe == "toy-matrix";
    EXPECT_EQ(levels.empty(), nothing_to_guess);
    // Before it has learned, nothing is much better than guessing; but the aligner is told of a diagonal.
    const auto level = step.chance_levels.find(step.losses.front().first);
    if (level != step.chance_levels.end() && recipe != "aligner") {
      EXPECT_GT(step.losses.front().second, 0.7 * level->second);
    }
  }
}

}  // namespace on_track_test
}  // namespace melete
