// voicebox-pytorch's voicebox.N.pt in and out again, and a run of ours that upstream goes on with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "foreign_files.h"
#include "systems/foreign.h"
#include "train/schedule.h"
#include "train/upstream_schedule.h"

namespace melete {
namespace voicebox_files_test {

using namespace testing;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string package() {
  return MELETE_SOURCE_DIR "/tests/golden/voicebox/checkpoints/voicebox.2.pt";
}

TEST(VoiceboxImport, PackagesComeOutAsTheyWentIn) {
  TemporaryFolder folder;
  const ImportedCheckpoint imported = import_foreign("voicebox-pytorch", package());
  EXPECT_EQ(imported.kind, "voicebox");
  EXPECT_TRUE(imported.complete);
  EXPECT_EQ(imported.checkpoint.step(), 3);  // saved after the step that names it
  save_checkpoint(folder / "x.safetensors", imported.checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  EXPECT_EQ(content(package()), content(folder / "y.pt"));
}

// Without what was kept of the package, a new one is made: names, order, shapes and optimiser must be
// upstream's.
TEST(VoiceboxImport, APackageMadeAnewIsTheSame) {
  TemporaryFolder folder;
  Checkpoint checkpoint = import_foreign("voicebox-pytorch", package()).checkpoint;
  checkpoint.meta.erase("foreign");
  save_checkpoint(folder / "x.safetensors", checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  auto theirs = content(package()), ours = content(folder / "y.pt");
  EXPECT_EQ(theirs.at("model").at("$ordered"), ours.at("model").at("$ordered"));
  EXPECT_EQ(theirs.at("optim").at("state"), ours.at("optim").at("state"));
  // The rate in force depends on settings of their trainer that no file has.
  for (Json* content : {&theirs, &ours})
    for (Json& group : content->at("optim").at("param_groups")) group.erase("lr");
  EXPECT_EQ(theirs.at("optim").at("param_groups"), ours.at("optim").at("param_groups"));
}

TEST(VoiceboxImport, ShapesTellTheSettings) {
  const Json config = import_foreign("voicebox-pytorch", package()).checkpoint.meta.at("config");
  EXPECT_EQ(config.at("told_by"), "none");
  EXPECT_EQ(config.at("model").at("frame_dim"), 12);
  EXPECT_EQ(config.at("model").at("transformer").at("dim"), 24);
  EXPECT_EQ(config.at("model").at("transformer").at("register_tokens"), 2);
  EXPECT_EQ(config.at("task").at("optimiser").at("learning_rate"), 0.003);
  EXPECT_THAT(error_of([] {
                import_foreign("voicebox-pytorch", package(), {{"dim", 32}});
              }),
              HasSubstr("dim = 32"));
}

// What upstream's trainer would use after a run of ours has stopped at `step` of 40.
std::vector<double> rates_after(const Json& schedule, int64_t step, int64_t count) {
  TemporaryFolder folder;
  Checkpoint checkpoint = import_foreign("voicebox-pytorch", package()).checkpoint;
  checkpoint.meta.erase("foreign");
  Json& config = checkpoint.meta.at("config");
  config.at("train")["steps"] = 40;
  for (const auto& [name, value] : schedule.items()) config.at("task").at("schedule")[name] = value;
  checkpoint.meta["step"] = step;
  save_checkpoint(folder / "x.safetensors", checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  const Json made = content(folder / "y.pt"), &theirs = made.at("scheduler");
  double rate = made.at("optim").at("param_groups").at(0).at("lr");
  EXPECT_EQ(theirs.at("_last_lr").at(0), rate);
  EXPECT_EQ(theirs.at("base_lrs").at(0), 0.003);
  const TorchScheduler cosine("CosineAnnealingLR",
                              {{"T_max", theirs.at("T_max")}, {"eta_min", theirs.at("eta_min")}});
  std::vector<double> rates = {rate};
  for (int64_t i = 1; i <= count; ++i) {
    rate = cosine.rate(theirs.at("last_epoch").get<int64_t>() + i, rate, 0.003);
    rates.push_back(rate);
  }
  return rates;
}

void expect_goes_on(const Json& settings, int64_t step) {
  SCOPED_TRACE(settings.dump() + " at " + std::to_string(step));
  const int64_t count = 10;
  ScheduleConfig config;
  schema_of(config).apply(settings);
  Schedule schedule(config, 0.003, 40);
  const auto rates = rates_after(settings, step, count);
  for (int64_t i = 0; i <= count; ++i)
    EXPECT_NEAR(rates[static_cast<size_t>(i)], schedule.rate(step - 1 + i), 1e-12) << i << " steps later";
}

TEST(VoiceboxExport, UpstreamGoesOnWithTheRateWhereARunStopped) {
  const Json cosine = {{"kind", "cosine"}, {"warmup_steps", 8}, {"decay_steps", 0}, {"minimum", 0.0}};
  for (const int64_t step : {8, 9, 20, 30}) expect_goes_on(cosine, step);
  Json higher = cosine;
  higher.update({{"minimum", 1e-4}, {"decay_steps", 50}});
  expect_goes_on(higher, 12);
  expect_goes_on({{"kind", "constant"}, {"warmup_steps", 8}, {"minimum", 0.0}}, 20);
  // Inside the warm-up their trainer sets the rate itself, and its scheduler has not begun.
  EXPECT_NEAR(rates_after(cosine, 3, 0)[0], 0.003 * 3 / 8, 1e-12);
}

}  // namespace voicebox_files_test
}  // namespace melete
