#include "config/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "config/nearest.h"
#include "core/base/error.h"
#include "core/base/random.h"

namespace melete {
namespace schema_test {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

struct ModelConfig {
  int64_t channels = 32;
  std::vector<int64_t> strides{2, 4, 5, 8};
  std::vector<double> weights{0.5};
  std::vector<std::string> names{"a"};
  std::string norm = "layer";
};

struct RunConfig {
  int64_t steps = 100;
  double rate = 1e-4;
  bool ema = true;
  std::string precision = "fp32", note = "";
  ModelConfig model;
  int64_t seed = 0;
};

void describe(Schema& s, ModelConfig& c) {
  s.option("channels", c.channels, "channels of the first layer").at_least(1).at_most(4096);
  s.option("strides", c.strides, "downsampling of each block").at_least(1);
  s.option("weights", c.weights, "weight of each loss").at_least(0).at_most(1);
  s.option("names", c.names, "parts to train").one_of({"a", "b", "c"});
  s.option("norm", c.norm, "kind of normalisation");
}

void describe(Schema& s, RunConfig& c) {
  s.option("steps", c.steps, "optimiser steps to take").at_least(1).unit("steps");
  s.option("rate", c.rate, "learning rate").at_least(0);
  s.option("ema", c.ema, "keep an average of the weights");
  s.option("precision", c.precision, "arithmetic of the forward pass").one_of({"fp32", "bf16"});
  s.option("note", c.note, "words for the reader of the run");
  s.section("model", c.model, "the network");
  s.option("seed", c.seed, "start of every random draw");
}

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

class SchemaTest : public ::testing::Test {
 protected:
  SchemaTest() : schema(schema_of(config)) {
    folder =
        std::filesystem::temp_directory_path() /
        (std::string("melete_schema_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
         "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
  }
  ~SchemaTest() override { std::filesystem::remove_all(folder); }

  std::string write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << text;
    return (folder / name).string();
  }
  std::string file_error(const std::string& text) {
    const std::string path = write("case.toml", text);
    return error_of([&] { schema.apply_file(path); });
  }
  std::string json_error(const std::string& text) {
    return error_of([&] { schema.apply(ordered_json::parse(text)); });
  }
  std::string set_error(const std::string& name, const std::string& text) {
    return error_of([&] { schema.set(name, text); });
  }

  RunConfig config;
  Schema schema;
  std::filesystem::path folder;
};

TEST(Nearest, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("trian", "train"), 1);
  EXPECT_EQ(edit_distance("Batch-Size", "batch_size"), 0);
}

TEST(Nearest, IsSymmetricAndZeroOnlyForEqualWords) {
  Rng rng(7);
  const auto word = [&] {
    std::string out;
    for (int64_t i = rng.integer(0, 7); i > 0; --i) out += static_cast<char>('a' + rng.integer(0, 3));
    return out;
  };
  for (int i = 0; i < 500; ++i) {
    const std::string a = word(), b = word();
    EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << " " << b;
    EXPECT_EQ(edit_distance(a, b) == 0, a == b);
    EXPECT_LE(edit_distance(a, b), static_cast<int>(std::max(a.size(), b.size())));
  }
}

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(nearest_word("trian", {"generate", "train", "data"}), "train");
  EXPECT_EQ(nearest_word("rate", {"gate", "sample_rate", "rata"}), "gate");  // one edit beats being a part
  EXPECT_EQ(nearest_word("chan", {"clip", "channels"}), "channels");
  EXPECT_EQ(nearest_word("anything", {}), "");
  EXPECT_EQ(nearest_word(std::string(100000, 'x'), {"a", "b"}), "a");
  EXPECT_EQ(nearest_dotted_name("chanels", {"steps", "model.channels"}), "model.channels");
  EXPECT_EQ(nearest_dotted_name("model.chanels", {"disc.channels", "model.channels"}), "model.channels");
  EXPECT_EQ(nearest_dotted_name("disk.channels", {"model.channels", "disc.channels"}), "disc.channels");
  EXPECT_EQ(nearest_dotted_name("net.learning_rate", {"model.layers", "optimiser.learning_rate"}),
            "optimiser.learning_rate");
}

TEST_F(SchemaTest, ReadsEveryKindFromToml) {
  const std::string path = write("a.toml", R"(
steps = 1_000
rate = 3          # an integer is a number
ema = false
precision = "bf16"
note = "line\none \"quoted\""
[model]
channels = 64.0   # whole, so it is an integer
strides = [2, 2]
weights = 1       # one value is a list of one
names = ["a", "c"]
)");
  schema.apply_file(path);
  EXPECT_EQ(config.steps, 1000);
  EXPECT_EQ(config.rate, 3.0);
  EXPECT_FALSE(config.ema);
  EXPECT_EQ(config.precision, "bf16");
  EXPECT_EQ(config.note, "line\none \"quoted\"");
  EXPECT_EQ(config.model.channels, 64);
  EXPECT_EQ(config.model.strides, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(config.model.weights, (std::vector<double>{1}));
  EXPECT_EQ(config.model.names, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(config.seed, 0);
}

TEST_F(SchemaTest, LaterKeysWinOverIncludes) {
  write("base/base.toml", "include = \"root.toml\"\nsteps = 2\nrate = 0.2\n[model]\nchannels = 2\n");
  write("base/root.toml", "steps = 1\nrate = 0.1\nseed = 1\n");
  write("extra.toml", "rate = 0.3\n");
  schema.apply_file(
      write("top.toml", "steps = 5\ninclude = [\"base/base.toml\", \"extra.toml\"]\n[model]\nnorm = 'rms'"));
  EXPECT_EQ(config.seed, 1);
  EXPECT_EQ(config.rate, 0.3);
  EXPECT_EQ(config.steps, 5);
  EXPECT_EQ(config.model.channels, 2);
  EXPECT_EQ(config.model.norm, "rms");
}

TEST_F(SchemaTest, RefusesIncludeCyclesAndMissingIncludes) {
  write("a.toml", "include = 'b.toml'\n");
  const std::string b = write("b.toml", "include = ['./sub/../a.toml']\n");
  std::filesystem::create_directories(folder / "sub");
  EXPECT_THAT(error_of([&] { schema.apply_file(b); }), HasSubstr("b.toml -> a.toml -> b.toml"));
  EXPECT_THAT(file_error("include = 'case.toml'"), HasSubstr("includes itself"));
  EXPECT_THAT(file_error("\ninclude = 'gone.toml'"),
              ::testing::AllOf(HasSubstr("case.toml:2"), HasSubstr("gone.toml")));
  EXPECT_THAT(file_error("include = 3"), HasSubstr("expected a file name"));
  EXPECT_THAT(file_error("include = ['']"), HasSubstr("expected a file name"));
  EXPECT_THAT(file_error("include = '.'"), HasSubstr("folder"));
  // Two files that include the same third one are no cycle.
  write("x.toml", "include = 'z.toml'\n");
  write("y.toml", "include = 'z.toml'\n");
  write("z.toml", "seed = 9\n");
  EXPECT_EQ(file_error("include = ['x.toml', 'y.toml']"), "(no error)");
  EXPECT_EQ(config.seed, 9);
}

TEST_F(SchemaTest, UnknownKeysNameFileLineKeyAndNearest) {
  const std::string message = file_error("steps = 1\n[model]\n\nchanels = 3\n");
  EXPECT_THAT(message, HasSubstr("case.toml:4"));
  EXPECT_THAT(message, HasSubstr("[model.chanels]"));
  EXPECT_THAT(message, HasSubstr("'model.channels'"));
  EXPECT_THAT(file_error("[modle]\nchannels = 3\n"),
              HasSubstr("[modle.channels] is not a setting; did you mean 'model.channels'?"));
  EXPECT_THAT(file_error("channels = 3\n"), HasSubstr("'model.channels'"));
  EXPECT_THAT(file_error("[modle]\n"), HasSubstr("[modle] is not a setting"));
  EXPECT_THAT(file_error("model = 3"), HasSubstr("group of settings"));
  EXPECT_THAT(file_error("[model.include]\nx = 1"), HasSubstr("[model.include.x]"));
  EXPECT_THAT(set_error("modl.norm", "x"), HasSubstr("'model.norm'"));
  EXPECT_THAT(json_error(R"({"stesp": 3})"), HasSubstr("'steps'"));
  // The error is in the included file, so that is the file it names.
  write("inner.toml", "\nsteeps = 1\n");
  EXPECT_THAT(file_error("include = 'inner.toml'"), HasSubstr("inner.toml:2"));
  // The first mistake of the file is the one named.
  EXPECT_THAT(file_error("zzz = 1\naaa = 2\n"), HasSubstr("[zzz]"));
}

TEST_F(SchemaTest, TypeErrorsSayWhatWasExpectedAndWhatCame) {
  EXPECT_THAT(file_error("\nsteps = 'many'"),
              HasSubstr("case.toml:2: [steps] expected integer, got text \"many\""));
  EXPECT_THAT(json_error(R"({"steps": 1.5})"), HasSubstr("expected integer, got number 1.5"));
  EXPECT_THAT(json_error(R"({"steps": true})"), HasSubstr("expected integer, got true"));
  EXPECT_THAT(json_error(R"({"steps": null})"), HasSubstr("got nothing"));
  EXPECT_THAT(json_error(R"({"steps": [1]})"), HasSubstr("got list [1]"));
  EXPECT_THAT(json_error(R"({"steps": {"a": 1}})"), HasSubstr("got a table"));
  EXPECT_THAT(json_error(R"({"steps": 18446744073709551615})"), HasSubstr("expected integer"));
  EXPECT_THAT(json_error(R"({"steps": 1e300})"), HasSubstr("expected integer"));
  EXPECT_THAT(json_error(R"({"rate": "fast"})"), HasSubstr("expected number, got text"));
  EXPECT_THAT(json_error(R"({"ema": 1})"), HasSubstr("expected true or false, got integer 1"));
  EXPECT_THAT(json_error(R"({"note": 1})"), HasSubstr("expected text, got integer 1"));
  EXPECT_THAT(json_error(R"({"model": {"strides": [2, 2.5]}})"),
              HasSubstr("[model.strides] expected list of integers"));
  EXPECT_THAT(json_error(R"({"model": {"strides": [[2]]}})"), HasSubstr("list of integers"));
  EXPECT_THAT(json_error(R"({"model": {"names": [1]}})"), HasSubstr("list of texts"));
  EXPECT_THAT(json_error("[1]"), HasSubstr("table"));
  EXPECT_THAT(file_error("rate = nan"), HasSubstr("expected number, got number nan"));
  EXPECT_THAT(file_error("rate = inf"), HasSubstr("expected number, got number inf"));
  EXPECT_THAT(set_error("steps", "12x"), HasSubstr("[steps] expected integer, got '12x'"));
  EXPECT_THAT(set_error("steps", "1.5"), HasSubstr("expected integer"));
  EXPECT_THAT(set_error("steps", ""), HasSubstr("expected integer"));
  EXPECT_THAT(set_error("steps", "99999999999999999999"), HasSubstr("expected integer"));
  EXPECT_THAT(set_error("rate", "inf"), HasSubstr("expected number"));
  EXPECT_THAT(set_error("rate", "1e"), HasSubstr("expected number"));
  EXPECT_THAT(set_error("ema", "maybe"), HasSubstr("expected true or false"));
  EXPECT_THAT(set_error("model.strides", "2,,4"), HasSubstr("list of integers"));
  EXPECT_EQ(config.steps, 100);  // nothing above changed a value
  EXPECT_EQ(config.model.strides.size(), 4u);
}

TEST_F(SchemaTest, FlagsReadListsBooleansAndNumbers) {
  for (const char* text : {"3,1,2", "[3, 1, 2]", " [3,1,2] ", "3, 1 ,2"}) {
    config.model.strides.clear();
    schema.set("model.strides", text);
    EXPECT_EQ(config.model.strides, (std::vector<int64_t>{3, 1, 2})) << text;
  }
  schema.set("model.strides", "7");
  EXPECT_EQ(config.model.strides, (std::vector<int64_t>{7}));
  schema.set("model.strides", "[]");
  EXPECT_TRUE(config.model.strides.empty());
  schema.set("model.names", R"(["b", a])");
  EXPECT_EQ(config.model.names, (std::vector<std::string>{"b", "a"}));
  for (const auto& [text, value] : std::vector<std::pair<std::string, bool>>{
           {"false", false}, {"on", true}, {"no", false}, {"1", true}}) {
    schema.set("ema", text);
    EXPECT_EQ(config.ema, value) << text;
  }
  schema.set("steps", "1e5");
  EXPECT_EQ(config.steps, 100000);
  schema.set("steps", "+2_000");
  EXPECT_EQ(config.steps, 2000);
  schema.set("seed", "-9223372036854775808");
  EXPECT_EQ(config.seed, std::numeric_limits<int64_t>::min());
  schema.set("note", "a, b = [c]");
  EXPECT_EQ(config.note, "a, b = [c]");
}

TEST_F(SchemaTest, RangesAndChoices) {
  EXPECT_THAT(set_error("steps", "0"), HasSubstr("[steps] expected at least 1 steps, got 0"));
  EXPECT_THAT(set_error("model.channels", "5000"), HasSubstr("expected 1 to 4096, got 5000"));
  EXPECT_THAT(set_error("model.weights", "0.5,1.5"), HasSubstr("expected 0 to 1, got 1.5"));
  EXPECT_THAT(set_error("precision", "bf61"),
              HasSubstr("expected one of fp32, bf16, got 'bf61'; did you mean 'bf16'?"));
  EXPECT_THAT(set_error("model.names", "a,B"), HasSubstr("did you mean 'b'?"));
  EXPECT_EQ(config.steps, 100);
  EXPECT_EQ(config.precision, "fp32");
  EXPECT_EQ(config.model.weights, (std::vector<double>{0.5}));
  schema.check();
  config.model.channels = 0;  // a struct that code filled in is checked as well
  EXPECT_THAT(error_of([&] { schema.check(); }), HasSubstr("[model.channels]"));
}

TEST_F(SchemaTest, JsonIsNestedInTableOrderAndComesBackTheSame) {
  config.rate = 0.1 + 0.2;
  config.steps = std::numeric_limits<int64_t>::max();
  config.note = "quote \" backslash \\ tab \t ünï \x01";
  config.model.weights = {1.0 / 3, 1, 0};
  config.model.names = {};
  const ordered_json saved = schema.json();
  EXPECT_EQ(saved.dump().find("{\"steps\":"), 0u);
  EXPECT_LT(saved.dump().find("\"model\""), saved.dump().find("\"seed\""));

  RunConfig other;
  Schema again = schema_of(other);
  again.apply(ordered_json::parse(saved.dump()));
  EXPECT_EQ(again.json(), saved);
  EXPECT_EQ(other.rate, config.rate);
  EXPECT_EQ(other.note, config.note);
  EXPECT_TRUE(other.model.names.empty());
}

TEST_F(SchemaTest, TextOfEveryOptionReadsBackAsTomlAndAsFlag) {
  config.note = "say \"hi\"\n\\ \x01 ü";
  config.rate = 1e-7;
  config.model.weights = {0.1, 1};
  config.model.names = {"a", "c"};
  std::string toml;
  for (const Option& option : schema.options()) toml += option.name() + " = " + option.text() + "\n";
  RunConfig from_file, from_flags;
  Schema file = schema_of(from_file), flags = schema_of(from_flags);
  file.apply_file(write("text.toml", toml));
  for (const Option& option : schema.options()) flags.set(option.name(), option.text());
  EXPECT_EQ(file.json(), schema.json());
  EXPECT_EQ(flags.json(), schema.json());
}

TEST_F(SchemaTest, HostileToml) {
  EXPECT_THAT(file_error("steps = 1\nsteps = 2\n"), HasSubstr("case.toml:2: not valid TOML"));
  EXPECT_THAT(file_error("steps = "), HasSubstr("not valid TOML"));
  EXPECT_THAT(file_error("[model\nchannels = 1"), HasSubstr("not valid TOML"));
  EXPECT_THAT(file_error("note = \"\xff\xfe\""), HasSubstr("not valid TOML"));
  EXPECT_THAT(file_error(std::string("steps = 1\0", 10)), HasSubstr("not valid TOML"));
  EXPECT_THAT(file_error("steps = 99999999999999999999"), HasSubstr("not valid TOML"));
  EXPECT_THAT(file_error("steps = 1979-05-27"), HasSubstr("[steps] expected"));
  EXPECT_THAT(file_error("steps = " + std::string(100000, '[')), HasSubstr("not valid TOML"));
  EXPECT_THAT(file_error("x" + std::string(100000, 'y') + " = 1"), HasSubstr("is not a setting"));
  EXPECT_THAT(file_error("[[model]]\nchannels = 1"), HasSubstr("group of settings"));
  EXPECT_THAT(file_error("model.strides = [{a = 1}]"),
              HasSubstr("[model.strides] expected list of integers"));
  EXPECT_THAT(file_error(std::string(5 << 20, '\n')), HasSubstr("at most 4 MB"));
  EXPECT_EQ(file_error(""), "(no error)");
  EXPECT_EQ(file_error("# only a comment"), "(no error)");
  EXPECT_EQ(file_error("\xef\xbb\xbfsteps = 7\r\n"), "(no error)");  // a byte order mark and Windows lines
  EXPECT_EQ(config.steps, 7);
  EXPECT_THAT(error_of([&] { schema.apply_file((folder / "none.toml").string()); }),
              HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { schema.apply_file(folder.string()); }), HasSubstr("folder"));
}

TEST_F(SchemaTest, MutatedTomlNeverDoesMoreThanThrowAnError) {
  const std::string good =
      "include = []\nsteps = 12\nnote = \"a\\u00e9\"\n[model]\nstrides = [2, 4]\nweights = 1e-3\n";
  Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    for (int64_t edits = rng.integer(1, 5); edits > 0; --edits) {
      const auto at = static_cast<size_t>(rng.integer(0, static_cast<int64_t>(bad.size())));
      if (rng.uniform() < 0.3)
        bad.erase(at, static_cast<size_t>(rng.integer(1, 9)));
      else if (rng.uniform() < 0.5)
        bad.insert(at, 1, "[]{}\"'=.\n#"[rng.integer(0, 10)]);
      else
        bad[at] = static_cast<char>(rng.integer(0, 256));
      if (bad.empty()) bad = "a";
    }
    const std::string path = write("mutated.toml", bad);
    const std::string message = error_of([&] { schema.apply_file(path); });
    EXPECT_FALSE(message.empty());
    EXPECT_NO_THROW(schema.check());
  }
}

TEST_F(SchemaTest, TableGroupsAlignsAndMarksChanges) {
  EXPECT_THAT(schema.table(), Not(HasSubstr("*")));
  config.model.channels = 64;
  const std::string table = schema.table();
  EXPECT_THAT(table, HasSubstr("steps       100 steps\n"));
  EXPECT_THAT(table, HasSubstr("  model: the network\n"));
  EXPECT_THAT(table, HasSubstr("\n*   channels  64\n"));
  EXPECT_THAT(table, HasSubstr("\n    strides   [2, 4, 5, 8]\n"));
  EXPECT_LT(table.find("seed"), table.find("model:"));  // what has no section comes first
}

TEST_F(SchemaTest, HelpShowsEveryFactAndFitsTheWidth) {
  config.steps = 7;  // help shows what the default was, not what a file made of it
  for (const int width : {60, 100}) {
    const std::string help = schema.help_text(width);
    for (const Option& option : schema.options()) {
      EXPECT_THAT(help, HasSubstr("--" + option.name() + " ")) << width;
    }
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
  }
  const std::string help = schema.help_text(200);
  EXPECT_THAT(help, HasSubstr("optimiser steps to take (integer, at least 1; default 100 steps)"));
  EXPECT_THAT(help, HasSubstr("(text, one of fp32, bf16; default \"fp32\")"));
  EXPECT_THAT(help, HasSubstr("(integer, 1 to 4096; default 32)"));
  EXPECT_THAT(help, HasSubstr("(list of integers, at least 1; default [2, 4, 5, 8])"));
  EXPECT_THAT(help, HasSubstr("model: the network\n"));
}

TEST(Schema, TableLeavesOutWhatBelongsToAnotherChoice) {
  struct Curve {
    int64_t turns = 3;
  } curve;
  std::string kind = "line";
  int64_t size = 5;
  Schema schema;
  schema.option("kind", kind, "which");
  schema.option("size", size, "of stairs");
  schema.option("curve.turns", curve.turns, "of a curve");
  schema.only_for("size", kind, {"stairs", "steps"});
  schema.only_for("curve", kind, {"curve"});
  EXPECT_THAT(schema.table(), AllOf(HasSubstr("kind"), Not(HasSubstr("size")), Not(HasSubstr("curve"))));
  EXPECT_THAT(schema.help_text(), AllOf(HasSubstr("--size"), HasSubstr("--curve.turns")));
  kind = "steps";
  EXPECT_THAT(schema.table(), AllOf(HasSubstr("size"), Not(HasSubstr("turns"))));
  schema.set("curve.turns", "4");  // what was set is never hidden
  EXPECT_THAT(schema.table(), AllOf(HasSubstr("size"), HasSubstr("turns")));
}

TEST(Schema, RefusesToDescribeASettingTwice) {
  Schema schema;
  int64_t value = 0;
  schema.option("a", value, "");
  EXPECT_THROW(schema.option("a", value, ""), Error);
  EXPECT_THROW(schema.option("include", value, ""), Error);
}

}  // namespace schema_test
}  // namespace melete
