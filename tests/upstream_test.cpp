// What we train goes on in the Python system that it is a package for: its own trainer loads the export and
// takes a step (upstream_goes_on.py). $MELETE_PYTHON is the command of a Python that has torch and these
// systems; without one the tests are skipped.
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "every_recipe.h"
#include "foreign_files.h"
#include "systems/foreign.h"

namespace melete {
namespace upstream_test {

using Settings = std::vector<std::pair<std::string, std::string>>;

struct Continued {
  std::string task, module;  // and what Python has to import for it
  Settings settings;         // besides the tiny recipe's: without what upstream does not know
};

void PrintTo(const Continued& continued, std::ostream* out) {
  *out << continued.task;
}

// Parts that upstream has, small.
const Settings kCodec = {{"model.codec.front", "wave"},
                         {"model.codec.noise_from_hz", "0"},
                         {"model.codec.channels", "8"},
                         {"model.codec.strides", "[2, 4]"},
                         {"model.codec.channel_multiples", "[1, 2]"},
                         {"model.codec.dim", "16"},
                         {"model.codec.as_audiolm_pytorch", "true"},
                         {"model.codec.quantizer.codebook_size", "32"},
                         {"model.multi_scale.channels", "16"},
                         {"model.multi_scale.layers", "4"},
                         {"model.multi_scale.groups", "[4, 16, 64, 256]"},
                         {"model.multi_scale.max_channels", "1024"},
                         {"model.loss.adversarial_weight", "1"},
                         {"model.loss.feature_weight", "100"},
                         {"train.ema.update_after_step", "0"}};
const Settings kPictures = {{"model.vae.dim", "16"},
                            {"model.vae.groups", "16"},
                            {"model.loss.adversarial", "hinge"},
                            {"model.discriminator.layers", "2"},
                            {"model.vae.quantizer.kind", "lfq"},
                            {"model.vae.quantizer.codebook_size", "64"}};

class UpstreamGoesOn : public ::testing::TestWithParam<Continued> {};

TEST_P(UpstreamGoesOn, WithAPackageOfOurs) {
  const Continued& continued = GetParam();
  if (!testing::python_has(continued.module))
    GTEST_SKIP() << "no Python that imports " << continued.module << "; MELETE_PYTHON names one";
  constexpr int kSteps = 3;
  testing::TemporaryFolder folder;
  Prepared made = prepare(continued.task, 2, [&](Schema& settings) {
    for (const auto& [name, value] : continued.settings) settings.set(name, value);
  });
  Trainer trainer({*made.task, *made.batches}, made.config);
  for (int step = 0; step < kSteps; ++step) ASSERT_FALSE(trainer.step().skipped);
  Checkpoint checkpoint = trainer.checkpoint();
  checkpoint.meta["config"] = made.recipe->schema().json();
  save_checkpoint(folder / "ours.safetensors", checkpoint);
  const std::string package = folder / fmt::format("package.{}.pt", kSteps - 1), notes = folder / "notes.txt";
  std::ofstream out(notes);
  for (const std::string& note :
       export_checkpoint(folder / "ours.safetensors", package, {ExportFor::training}))
    out << note << "\n\n";
  out.close();
  const std::string command = fmt::format("{} {}/tests/upstream_goes_on.py {} {} {} {}", testing::python(),
                                          MELETE_SOURCE_DIR, continued.task, package, kSteps, notes);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

INSTANTIATE_TEST_SUITE_P(
    Systems, UpstreamGoesOn,
    ::testing::Values(Continued{"soundstream", "audiolm_pytorch", kCodec},
                      Continued{"semantic", "audiolm_pytorch", {}},
                      Continued{"coarse", "audiolm_pytorch", {}}, Continued{"fine", "audiolm_pytorch", {}},
                      Continued{"spear-pretrain", "spear_tts_pytorch", {}},
                      Continued{"spear-back-translate", "spear_tts_pytorch", {{"task.freeze", "true"}}},
                      Continued{"spear-text-to-semantic",
                                "spear_tts_pytorch",
                                {{"task.freeze", "true"}, {"task.frozen_encoder_layers", "1"}}},
                      Continued{"voicebox",
                                "voicebox_pytorch",
                                {{"told_by", "none"}, {"model.transformer.skip_connections", "false"}}},
                      Continued{"mulan", "musiclm_pytorch", {}},
                      Continued{"vqgan", "muse_maskgit_pytorch", kPictures}),
    [](const auto& each) {
      std::string name = each.param.task;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace upstream_test
}  // namespace melete
