#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/app.h"
#include "cli/arguments.h"
#include "cli/terminal.h"
#include "cli/training_display.h"
#include "core/base/error.h"
#include "core/base/version.h"

namespace melete {
namespace cli_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct EmaSettings {
  bool enabled = true;
  double beta = 0.995;
};

struct Settings {
  int64_t steps = 100, batch_size = 4;
  std::string precision = "fp32";
  std::vector<int64_t> strides{2, 4};
  EmaSettings ema;
};

void describe(Schema& s, EmaSettings& c) {
  s.option("enabled", c.enabled, "keep an average of the weights");
  s.option("beta", c.beta, "decay").at_least(0).at_most(1);
}

void describe(Schema& s, Settings& c) {
  s.option("train.steps", c.steps, "steps to take").at_least(1);
  s.option("batch_size", c.batch_size, "items in a batch").at_least(1);
  s.option("precision", c.precision, "arithmetic").one_of({"fp32", "bf16"});
  s.option("model.strides", c.strides, "downsampling");
  s.section("ema", c.ema, "moving average");
}

// A command like any other, which keeps what it was given.
struct Practice {
  Settings settings;
  Schema schema = schema_of(settings);
  std::string what, where = "here", data, out = "runs/latest";
  bool resume = false;
  Arguments arguments{"practice", "does it again"};

  Practice() {
    arguments.word("what", what, "piece to play").one_of({"scale", "etude"});
    arguments.optional_word("where", where, "room");
    arguments.option("data", data, "folder of recordings");
    arguments.option("out", out, "folder of the run");
    arguments.option("resume", resume, "go on");
    arguments.alias("o", "out");
    arguments.alias("steps", "train.steps");
    arguments.settings(schema);
  }
};

std::string usage_error(const std::vector<std::string>& args) {
  try {
    Practice().arguments.parse(args);
  } catch (const UsageError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("wrong kind of error: ") + error.what();
  }
  return "(no error)";
}

std::string contents(std::FILE* file) {
  std::fflush(file);
  std::rewind(file);
  std::string out;
  for (int c; (c = std::fgetc(file)) != EOF;) out += static_cast<char>(c);
  return out;
}

struct Outcome {
  int code;
  std::string out, error;
};

std::vector<Command> table() {
  return {
      {"practice", "does it again",
       [](const std::vector<std::string>& args) {
         Practice practice;
         practice.arguments.parse(args);
         return 0;
       }},
      {"broken", "fails", [](const auto&) -> int { fail("[disk] expected space, got none; try another"); }},
      {"deep", "fails inside LibTorch",
       [](const auto&) -> int {
         throw std::runtime_error("shape mismatch\nException raised from x\nframe #0: secret\n");
       }},
      {"hungry", "runs out", [](const auto&) -> int { throw std::bad_alloc(); }},
      {"odd", "throws a number", [](const auto&) -> int { throw 3; }},
      {"stopped", "is interrupted", [](const auto&) { return 130; }},
  };
}

Outcome run(const std::vector<std::string>& args) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_program(args, table());
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

std::filesystem::path recipe(const std::string& text) {
  const auto path =
      std::filesystem::temp_directory_path() / ("melete_cli_" + std::to_string(::getpid()) + ".toml");
  std::ofstream(path) << text;
  return path;
}

TEST(Arguments, ReadsWordsFlagsAndSettingsInEveryForm) {
  Practice p;
  ASSERT_TRUE(p.arguments.parse({"scale", "--data", "x y", "-o", "out", "--resume", "--batch_size=8", "hall",
                                 "--model.strides", "2,4,5,8", "--set", "precision=bf16", "--no-ema.enabled",
                                 "--ema.beta", "0.5", "--steps", "7"}));
  EXPECT_EQ(p.what, "scale");
  EXPECT_EQ(p.where, "hall");
  EXPECT_EQ(p.data, "x y");
  EXPECT_EQ(p.out, "out");
  EXPECT_TRUE(p.resume);
  EXPECT_EQ(p.settings.batch_size, 8);
  EXPECT_EQ(p.settings.strides, (std::vector<int64_t>{2, 4, 5, 8}));
  EXPECT_EQ(p.settings.precision, "bf16");
  EXPECT_FALSE(p.settings.ema.enabled);
  EXPECT_EQ(p.settings.ema.beta, 0.5);
  EXPECT_EQ(p.settings.steps, 7);
  EXPECT_TRUE(p.arguments.given("train.steps"));
  EXPECT_TRUE(p.arguments.given("out"));
  EXPECT_FALSE(p.arguments.given("config"));
}

TEST(Arguments, BooleansStandAloneOrTakeAWord) {
  for (const auto& [words, expected] :
       std::vector<std::pair<std::vector<std::string>, bool>>{{{"--no-ema.enabled", "--ema.enabled"}, true},
                                                              {{"--ema.enabled=false"}, false},
                                                              {{"--ema.enabled", "false"}, false},
                                                              {{"--ema.enabled=on"}, true}}) {
    Practice p;
    std::vector<std::string> args{"scale"};
    args.insert(args.end(), words.begin(), words.end());
    p.arguments.parse(args);
    EXPECT_EQ(p.settings.ema.enabled, expected) << words[0];
  }
  Practice p;  // a word after a boolean flag stays a word
  p.arguments.parse({"--resume", "etude"});
  EXPECT_TRUE(p.resume);
  EXPECT_EQ(p.what, "etude");
}

TEST(Arguments, DashesNumbersAndTheEndOfFlags) {
  Practice p;
  p.arguments.parse({"--batch-size", "3", "scale", "--", "--resume"});
  EXPECT_EQ(p.settings.batch_size, 3);
  EXPECT_EQ(p.where, "--resume");
  EXPECT_FALSE(p.resume);
  EXPECT_THAT(usage_error({"scale", "--ema.beta", "-3"}), HasSubstr("--ema.beta: expected 0 to 1, got -3"));
  Practice negative;
  negative.arguments.parse({"scale", "-3"});
  EXPECT_EQ(negative.where, "-3");
}

// However a name was spelled in the program and on the command line, it is one name, shown in one spelling.
TEST(Arguments, DashesAndUnderscoresAreOneName) {
  for (const auto& [registered, typed] :
       std::vector<std::pair<std::string, std::string>>{{"auto-resume", "--auto-resume"},
                                                        {"auto-resume", "--auto_resume"},
                                                        {"auto_resume", "--auto-resume"}}) {
    bool resume = false;
    std::string data;
    Arguments arguments("train", "trains");
    arguments.option(registered, resume, "goes on by itself");
    arguments.option("valid_from", data, "data");
    arguments.alias("valid-data", "valid_from");
    EXPECT_TRUE(arguments.parse({typed, "--valid_data", "a", "--valid-data", "b", "--valid-from=c"}));
    EXPECT_TRUE(resume) << registered << " as " << typed;
    EXPECT_EQ(data, "c");
    EXPECT_TRUE(arguments.given("auto-resume") && arguments.given("auto_resume"));
    EXPECT_TRUE(arguments.parse({"--no_auto_resume"}));
    EXPECT_FALSE(resume);
    EXPECT_THAT(arguments.help_text(), HasSubstr("--auto_resume"));
    EXPECT_THAT(arguments.help_text(), HasSubstr("--valid_data"));
    EXPECT_THAT(arguments.help_text(), Not(HasSubstr("--auto-resume")));
    EXPECT_THAT(arguments.help_text(), Not(HasSubstr("--valid-data")));
  }
  Practice p;
  p.arguments.parse({"scale", "--set", "batch-size=5"});
  EXPECT_EQ(p.settings.batch_size, 5);
}

TEST(Arguments, UnknownFlagsNameTheNearest) {
  EXPECT_THAT(usage_error({"scale", "--dta", "x"}),
              HasSubstr("unknown option '--dta'; did you mean '--data'?"));
  EXPECT_THAT(usage_error({"scale", "--stride", "2"}), HasSubstr("'--model.strides'"));
  EXPECT_THAT(usage_error({"scale", "--modle.strides=2"}), HasSubstr("'--model.strides'"));
  EXPECT_THAT(usage_error({"scale", "--no-ema.enabledd"}), HasSubstr("'--no-ema.enabled'"));
  EXPECT_THAT(usage_error({"scale", "--confg", "x"}), HasSubstr("'--config'"));
  EXPECT_THAT(usage_error({"scale", "-out", "x"}), HasSubstr("did you mean '--out'?"));
  EXPECT_THAT(usage_error({"scale", "--set", "emma.beta=1"}), HasSubstr("did you mean 'ema.beta'?"));
  EXPECT_THAT(usage_error({"scale", "-x"}), HasSubstr("unknown option '-x'"));
  for (const char* odd :
       {"---", "----x", "--=", "-=", "--no-", "-", "--\xff", "=", "--set=", "--set==", "--config="}) {
    EXPECT_THAT(usage_error({"scale", "here", odd}), Not(HasSubstr("wrong kind"))) << odd;
    EXPECT_NE(usage_error({"scale", "here", odd}), "(no error)") << odd;
  }
  EXPECT_LT(usage_error({"scale", "--" + std::string(100000, 'x')}).size(), 300u);
}

TEST(Arguments, WrongValuesNameTheFlagAndTheNearestChoice) {
  EXPECT_THAT(usage_error({"scale", "--precision", "bf61"}),
              HasSubstr("--precision: expected one of fp32, bf16, got 'bf61'; did you mean 'bf16'?"));
  EXPECT_THAT(usage_error({"scael"}),
              HasSubstr("<what>: expected one of scale, etude, got 'scael'; did you mean 'scale'?"));
  EXPECT_THAT(usage_error({"scale", "--steps", "many"}),
              HasSubstr("--train.steps: expected integer, got 'many'"));
  EXPECT_THAT(usage_error({"scale", "--resume=perhaps"}), HasSubstr("--resume: expected true or false"));
  EXPECT_THAT(usage_error({"scale", "--data"}), HasSubstr("--data: expected text, got nothing"));
  EXPECT_THAT(usage_error({"scale", "--data", "--resume"}),
              HasSubstr("--data: expected text, got '--resume'"));
  EXPECT_THAT(usage_error({"scale", "--no-data"}), HasSubstr("no 'no-' form"));
  EXPECT_THAT(usage_error({"scale", "--no-resume=1"}), HasSubstr("expected no value"));
  EXPECT_THAT(usage_error({"scale", "--set", "precision"}), HasSubstr("expected key=value"));
  EXPECT_THAT(usage_error({}), AllOf(HasSubstr("expected <what>"), HasSubstr("one of scale, etude")));
  EXPECT_THAT(usage_error({"scale", "a", "b"}), HasSubstr("unexpected word 'b'"));
  EXPECT_THAT(usage_error({"scale", "a", "precision=bf16"}), HasSubstr("did you mean '--precision=bf16'?"));
  EXPECT_THAT(usage_error({"scale", "--config", "/nonexistent.toml"}), HasSubstr("/nonexistent.toml"));
}

TEST(Arguments, FlagsWinOverRecipesAndRecipesOverDefaults) {
  const auto path = recipe("batch_size = 16\nprecision = 'bf16'\n[train]\nsteps = 50\n");
  Practice p;
  p.arguments.parse(
      {"scale", "--steps", "9", "--config", path.string()});  // the order of words does not matter
  EXPECT_EQ(p.settings.steps, 9);
  EXPECT_EQ(p.settings.batch_size, 16);
  EXPECT_EQ(p.settings.precision, "bf16");
  EXPECT_EQ(p.settings.ema.beta, 0.995);

  // A checkpoint's settings come in below both.
  p.schema.apply(
      nlohmann::ordered_json::parse(R"({"batch_size": 2, "train": {"steps": 3}, "ema": {"beta": 0.25}})"));
  p.arguments.apply_settings();
  EXPECT_EQ(p.settings.steps, 9);
  EXPECT_EQ(p.settings.batch_size, 16);
  EXPECT_EQ(p.settings.ema.beta, 0.25);
  std::filesystem::remove(path);

  Practice last;
  last.arguments.parse({"scale", "--steps", "1", "--set", "train.steps=2", "--train.steps=3"});
  EXPECT_EQ(last.settings.steps, 3);
}

TEST(Arguments, MistakesInARecipeAreNamedWithFileAndLine) {
  const auto path = recipe("\nprecison = 'bf16'\n");
  EXPECT_THAT(usage_error({"scale", "--config", path.string()}),
              AllOf(HasSubstr(path.string() + ":2"), HasSubstr("did you mean 'precision'?")));
  std::filesystem::remove(path);
}

TEST(Arguments, HelpHoldsEveryOptionAndFitsTheWidth) {
  Practice p;
  for (const int width : {60, 100}) {
    const std::string help = p.arguments.help_text(width);
    for (const Option& option : p.schema.options()) EXPECT_THAT(help, HasSubstr("--" + option.name()));
    for (const char* word :
         {"<what>", "[where]", "--data", "-o, --out", "--resume", "--config", "--set", "--steps", "--help"}) {
      EXPECT_THAT(help, HasSubstr(word));
    }
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
    }
  }
}

TEST(Program, ExitCodesAndMessages) {
  const Outcome unknown = run({"practise", "scale"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.error,
              HasSubstr("melete: unknown command 'practise'; did you mean 'practice'?\nhint: "));
  EXPECT_EQ(unknown.out, "");
  const Outcome flag = run({"practice", "scale", "--dta", "x"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.error, AllOf(HasSubstr("'--data'"), HasSubstr("melete help practice")));
  EXPECT_EQ(run({"practice", "scale"}).code, 0);
  const Outcome broken = run({"broken"});
  EXPECT_EQ(broken.code, 1);
  EXPECT_EQ(broken.error, "melete: [disk] expected space, got none; try another\n");
  const Outcome deep = run({"deep"});
  EXPECT_EQ(deep.code, 1);
  EXPECT_EQ(deep.error, "melete: shape mismatch\n");
  EXPECT_THAT(run({"hungry"}).error, HasSubstr("out of memory"));
  EXPECT_EQ(run({"odd"}).code, 1);
  EXPECT_EQ(run({"stopped"}).code, 130);
}

TEST(Program, HelpAndVersion) {
  for (const char* word : {"help", "--help", "-h"}) {
    const Outcome help = run({word});
    EXPECT_EQ(help.code, 0);
    for (const Command& command : table()) EXPECT_THAT(help.out, HasSubstr(command.name)) << word;
  }
  const std::string asked = run({"help", "practice"}).out;
  EXPECT_THAT(asked, AllOf(HasSubstr("--ema.beta"), HasSubstr("--data")));
  EXPECT_EQ(run({"practice", "--help"}).out, asked);
  EXPECT_EQ(run({"practice", "scale", "--data", "x", "-h"}).out, asked);
  EXPECT_EQ(run({"help", "practise"}).code, 2);
  EXPECT_EQ(run({}).code, 2);
  EXPECT_EQ(run({"--version"}).out, std::string("melete ") + version() + "\n");
  EXPECT_EQ(run({"version"}).code, 0);
}

TEST(Terminal, ShortNumbersAreShortAndTrue) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.12345), "0.1235");
  EXPECT_EQ(short_number(123.456), "123.46");
  EXPECT_EQ(short_number(std::nan("")), "nan");
  for (double value = 1.2345678e-12; value < 1e12; value *= 1.37) {
    EXPECT_LE(short_number(value).size(), 7u) << value;
    EXPECT_NEAR(std::stod(short_number(value)) / value, 1, 0.06) << value;
    EXPECT_EQ("-" + short_number(value), short_number(-value));
  }
  for (const double edge : {9.99995, 99.9995, 999.995, 9999.95, 99999.5, 9.995e-4}) {
    EXPECT_LE(short_number(edge).size(), 7u);
    EXPECT_LE(short_number(std::nextafter(edge, 0)).size(), 7u);
  }
}

TEST(Terminal, HumanFormats) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1.5e6), "1.50 MB");
  EXPECT_EQ(human_bytes(999.9e6), "1.00 GB");
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(12345), "12.3 k");
  EXPECT_EQ(human_seconds(0.34), "340 ms");
  EXPECT_EQ(human_seconds(12.34), "12.3 s");
  EXPECT_EQ(human_seconds(59.99), "1 m 00 s");
  EXPECT_EQ(human_seconds(245), "4 m 05 s");
  EXPECT_EQ(human_seconds(3599.9), "1 h 00 m");
  EXPECT_EQ(human_seconds(7620), "2 h 07 m");
  EXPECT_EQ(human_seconds(3 * 86400 + 4 * 3600), "3 d 04 h");
}

TEST(Terminal, TablesAlignWordsLeftAndNumbersRight) {
  TextTable table({"name", "size"});
  table.row({"ä", "5"});
  table.row({"longer", "-12.5"});
  table.row({"gone"});
  EXPECT_EQ(table.text(), "name     size\n------  -----\nä           5\nlonger  -12.5\ngone\n");
}

TEST(Terminal, ProgressFitsAndCountsDown) {
  const std::string line = progress_line("index", 25, 100, "files", 10, "a.wav", 79);
  EXPECT_THAT(line, AllOf(HasSubstr(" 25% ["), HasSubstr("25/100 files"), HasSubstr("30.0 s left"),
                          HasSubstr("a.wav")));
  for (int width : {20, 40, 79, 200}) {
    EXPECT_LE(display_width(progress_line("läbel", 3, 9, "ü", 1, std::string(300, 'x'), width)),
              static_cast<size_t>(width));
  }
  EXPECT_THAT(progress_line("a", 0, 10, "files", 0, "", 79), Not(HasSubstr("left")));
  EXPECT_THAT(progress_line("a", 7, 0, "files", 1, "", 79), HasSubstr("7 files"));
  EXPECT_THAT(progress_line("a", 12, 10, "files", 1, "", 79), HasSubstr("100%"));
}

TEST(Terminal, ProgressInAFileIsTenPlainLines) {
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("index", 1000, "files", file);
    for (int i = 0; i <= 1000; ++i) bar.update(i, "x");
  }
  const std::string text = contents(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_THAT(text, AllOf(HasSubstr("index: 10% (100/1000 files"), HasSubstr("index: 100% (1000/1000 files"),
                          Not(HasSubstr("\x1b"))));
  std::fclose(file);
}

TEST(TrainingDisplay, ScoreIsTheDistanceInDeviations) {
  RollingScore score;
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(score.score(i % 2 ? 1.0 : 3.0)));
  EXPECT_NEAR(score.score(4.0), 2.0, 1e-12);  // mean 2, deviation 1
  EXPECT_TRUE(std::isnan(score.score(std::nan(""))));
  EXPECT_TRUE(std::isfinite(score.score(2.0)));
  for (int i = 0; i < 128; ++i) score.score(5.0);  // only the last 128 count
  EXPECT_EQ(score.score(5.0), 0);
  EXPECT_EQ(score.mean(), 5.0);
}

StepReport report_of(int64_t step) {
  StepReport report;
  report.step = step;
  report.steps_total = 100000;
  report.losses = {{"generator.total", 12.3456},         {"generator.reconstruction", 1.2e-5},
                   {"generator.multi_scale_mel", 98.7},  {"generator.adversarial", -1.5},
                   {"generator.feature_matching", 0.25}, {"generator.commitment", 3.0},
                   {"discriminator.stft", 2.0},          {"discriminator.scale_0", 1.0},
                   {"discriminator.scale_1", 1.5},       {"discriminator.scale_2", 1.75}};
  report.gradient_norms = {{"generator", 1.25 + 0.01 * static_cast<double>(step % 7)},
                           {"discriminator", 0.5}};
  report.learning_rates = {{"generator", 2e-4}, {"discriminator", 2e-4}};
  report.seconds = 0.812;
  report.data_wait_seconds = 0.004;
  report.items_per_second = 9.85;
  return report;
}

TEST(TrainingDisplay, OneAlignedLineAStepWithin160Columns) {
  std::FILE* file = std::tmpfile();
  TrainingDisplay display(file, Columns::all);
  for (int64_t step = 1; step <= 30; ++step) {
    StepReport report = report_of(step);
    if (step == 20) report.losses.emplace_back("discriminator.gradient_penalty", 0.125);
    display.step(report);
  }
  const std::string text = contents(file);
  std::istringstream lines(text);
  size_t steps = 0, width = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(display_width(line), 160u) << line;
    if (line.find("/100000") == std::string::npos) continue;
    ++steps;
    if (steps > 1 && steps != 20) {
      EXPECT_EQ(line.size(), width) << line;
    }
    width = line.size();
  }
  EXPECT_EQ(steps, 30u);
  EXPECT_THAT(text, AllOf(HasSubstr("12.346"), HasSubstr("1.2e-05"), HasSubstr("-1.5000"),
                          HasSubstr("2.00e-4"), HasSubstr("812"), HasSubstr("22h33m")));
  EXPECT_THAT(text, HasSubstr("= discriminator.scale_2"));
  EXPECT_THAT(text, HasSubstr("0.1250"));
  std::fclose(file);
}

TEST(TrainingDisplay, ColumnsWithoutRoomAreNamed) {
  std::FILE* file = std::tmpfile();
  TrainingDisplay display(file, Columns::all);
  StepReport report = report_of(1);
  for (const char* more : {"a", "b", "c", "d", "e", "f"})
    report.losses.emplace_back(fmt::format("another.loss_{}", more), 0.5);
  report.gradient_norms.emplace_back("third", 1.0);
  report.learning_rates[1].second = 1e-4;
  display.step(report);
  const std::string text = contents(file);
  std::istringstream lines(text);
  size_t steps = 0;
  std::string named;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(display_width(line), 160u) << line;
    if (line.starts_with("only in metrics.jsonl")) named = line;
    if (line.find("/100000") != std::string::npos) ++steps;
    if (steps > 0) {
      EXPECT_THAT(line, AllOf(HasSubstr("12.346"), HasSubstr("22h33m")));
    }
  }
  EXPECT_EQ(steps, 1u) << "one line, not two";
  EXPECT_THAT(named, AllOf(HasSubstr("|third| z"), HasSubstr("rate discriminator"),
                           Not(HasSubstr("|generator| z")), Not(HasSubstr("generator.total"))));
  std::fclose(file);
}

// What a person needs, and nothing else: the twenty columns of the tests above come on request.
TEST(TrainingDisplay, ALineSaysLossExpectationQualityAndTime) {
  std::FILE* file = std::tmpfile();
  {
    TrainingDisplay display(file);
    RunStart start;
    start.main_figure = {"mel_distance", false};
    start.expected = {"mel_distance 1.3 to 1.6 after 100000 steps on speech"};
    display.start(start);
    StepReport report = report_of(1);
    report.chance_levels = {{"generator.total", 20}, {"discriminator.stft", 2}};
    display.step(report);
    display.validation({1, {{"mel_distance", 1.75}, {"code_use_1", 0.25}}, {}, "online"});
    ValidationReport averaged{1, {{"mel_distance", 1.5}}, {{"mel_distance", 3.0}}, "ema"};
    averaged.expected["mel_distance"] = {1.3, 1.6};
    display.validation(averaged);
    report = report_of(2);
    report.chance_levels = {{"generator.total", 21}, {"discriminator.stft", 2}};
    report.expected["generator.total"] = {11, 12.5};
    display.step(report);
  }
  std::istringstream lines(contents(file));
  std::vector<std::string> steps, all;
  for (std::string line; std::getline(lines, line);) {
    all.push_back(line);
    if (line.find("/100000") != std::string::npos) steps.push_back(line);
    EXPECT_LE(display_width(line), 100u) << line;
  }
  ASSERT_EQ(steps.size(), 2u);
  const auto words = [](const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> found;
    for (std::string word; in >> word;) found.push_back(word);
    return found;
  };
  EXPECT_THAT(words(steps[0]), ElementsAre("1/100000", "12.346", "20.000", "-", "2.00e-4", "812", "22h33m"));
  EXPECT_THAT(words(steps[1]), ElementsAre("2/100000", "12.346", "11.000", "to", "12.500", "21.000", "1.5000",
                                           "2.00e-4", "812", "22h33m"));
  EXPECT_THAT(all,
              Contains(AllOf(HasSubstr("validation at step 1, ema"),
                             HasSubstr("mel_distance 1.5000 (chance 3.0000, expected 1.3000 to 1.6000)"))));
  EXPECT_THAT(all, Contains(AllOf(HasSubstr("expected"), HasSubstr("after 100000 steps on speech"))));
  std::fclose(file);
}

TEST(TrainingDisplay, TellsEverythingElse) {
  std::FILE* file = std::tmpfile();
  {
    TrainingDisplay display(file, Columns::all);
    RunStart start;
    start.task = "soundstream";
    start.settings_table = "  steps  100\n";
    start.parameter_counts = {{"encoder", 1200000}, {"decoder", 2300000}};
    start.data = {"training: 12 files", "validation: 3 files"};
    start.threads = 2;
    start.precision = "bf16";
    start.device = "cpu";
    start.resumed_from_step = 40;
    start.steps_total = 100;
    start.folder = "runs/a";
    display.start(start);
    StepReport step;
    step.step = 41;
    step.steps_total = 100;
    step.losses = {{"semantic", std::nan("")}};
    step.chance_levels = {{"semantic", 6.2146}};
    step.skipped = true;
    step.skip_reason = "loss semantic is nan";
    step.skipped_total = 3;
    display.step(step);
    ValidationReport validation{41, {{"semantic", 3.5}, {"mel", 0.5}}, {{"semantic", 6.2146}}, "ema"};
    display.validation(validation);
    display.saved("runs/a/checkpoints/41.safetensors", 41);
    display.warning("a.wav cannot be read");
    display.finished("done: 100 steps");
  }
  const std::string text = contents(file);
  for (const char* part :
       {"training soundstream", "steps  100", "3.50 M (encoder 1.20 M, decoder 2.30 M)", "training: 12 files",
        "validation: 3 files", "2 threads, cpu, bf16", "resumed from step 40", "runs/a",
        "chance levels: semantic 6.2146", "warning: step 41 skipped: loss semantic is nan (3 so far)",
        "validation at step 41, ema:  semantic 3.5000 (chance 6.2146)  mel 0.5000",
        "saved runs/a/checkpoints/41.safetensors (step 41)", "warning: a.wav cannot be read",
        "done: 100 steps"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\r"))));
  std::fclose(file);
}

}  // namespace cli_test
}  // namespace melete
