// The plan for many accelerators: arithmetic on a model's own sizes, and the documentation that shows it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "cli/plan_command.h"
#include "measure/plan.h"
#include "real_process.h"
#include "systems/soundstream/system.h"
#include "toy_task.h"

namespace melete {
namespace plan_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kSource = MELETE_SOURCE_DIR;

PlanSizes sizes_of_file(const std::string& what, const std::string& file,
                        const std::map<std::string, std::string>& more = {}) {
  const auto recipe = make_recipe(what);
  Schema schema = recipe->schema();
  schema.apply_file((kSource / "recipes" / file).string());
  for (const auto& [name, value] : more) schema.set(name, value);
  return sizes_of(*recipe);
}

TEST(Plan, AStageNeedsNeitherDataNorFrozenModels) {
  const PlanSizes assumed = sizes_of_file("coarse", "audiolm/coarse_tiny.toml");
  EXPECT_EQ(assumed.assumed, "1024 semantic tokens, 12 codebooks of 1024");
  EXPECT_EQ(assumed.gradient_bytes, 4 * assumed.parameters);
  EXPECT_EQ(assumed.codebook_bytes, 0);
  EXPECT_EQ(assumed.checkpoint_bytes, assumed.model_bytes + assumed.optimiser_bytes + assumed.average_bytes);
  // What the settings say is believed, and the tokens are in the model: embeddings, heads.
  const PlanSizes fewer = sizes_of_file("coarse", "audiolm/coarse_tiny.toml",
                                        {{"model.semantic_tokens", "64"}, {"model.codebook_size", "32"}});
  EXPECT_EQ(fewer.assumed, "64 semantic tokens, 12 codebooks of 32");
  EXPECT_LT(fewer.parameters, assumed.parameters - (1024 - 64) * 64);
  // A codec's codebooks travel, a transformer has none.
  EXPECT_GT(sizes_of_file("soundstream", "soundstream/tiny.toml").codebook_bytes, 0);
}

TEST(Plan, WhatARingSends) {
  PlanSizes sizes;
  sizes.gradient_bytes = 1000;
  sizes.codebook_bytes = 100;
  sizes.optimiser_bytes = 2000;
  sizes.model_bytes = 1000;
  PlanAssumptions assumptions;
  assumptions.accelerators = {1, 2, 1000};
  const auto rows = plan(sizes, assumptions);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].sent_bytes, 0);
  EXPECT_DOUBLE_EQ(rows[1].sent_bytes, 1100);
  EXPECT_NEAR(rows[2].sent_bytes, 2200, 3);
  EXPECT_DOUBLE_EQ(rows[1].memory_bytes - rows[1].sharded_memory_bytes, 1000);
  EXPECT_DOUBLE_EQ(rows[1].memory_bytes, 5000);
}

// Each line of a table, whatever the widths of its columns.
std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    line = std::regex_replace(line, std::regex("  +"), "  ");
    line = std::regex_replace(line, std::regex("--+"), "--");
    lines.insert(std::regex_replace(line, std::regex("^ +| +$"), ""));
  }
  return lines;
}

TEST(Plan, TheDocumentationShowsWhatTheCommandPrints) {
  // All but the stages at the papers' size, which would take gigabytes.
  const toy::TemporaryFolder folder;
  fs::copy(kSource / "recipes", folder.path + "/recipes", fs::copy_options::recursive);
  std::set<std::string> left_out;
  for (const char* stage : {"semantic", "coarse", "fine"}) {
    left_out.insert(stage + std::string("_paper"));
    ASSERT_TRUE(fs::remove(folder.path + "/recipes/audiolm/" + stage + "_paper.toml"));
  }
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(plan_command({"--plan", "--recipes", folder.path + "/recipes"}), 0);
  const auto printed = lines_of(::testing::internal::GetCapturedStdout());
  const std::string text = read_text(kSource / "docs/scale.md");
  const auto documented = lines_of(text);
  EXPECT_GT(printed.size(), 4u * 10u);
  for (const std::string& line : printed)
    EXPECT_EQ(documented.count(line), 1u) << "docs/scale.md has no line: " << line;
  for (const std::string& name : left_out) EXPECT_THAT(text, HasSubstr(name));
}

// A recipe for training says more than a bench asks for.
TEST(SoundStreamBench, TakesEveryRecipe) {
  for (const char* file : {"default.toml", "audiolm.toml", "musiclm.toml", "tiny.toml"}) {
    const auto benchmark = make_soundstream_benchmark();
    Schema schema;
    benchmark->describe(schema);
    schema.apply_file((kSource / "recipes/soundstream" / file).string());
    schema.check();
  }
}

}  // namespace plan_test
}  // namespace melete
