// musiclm-pytorch's mulan.N.pt in and out again, and trained on in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "data/loader.h"
#include "foreign_files.h"
#include "measure/noise_batches.h"
#include "systems/foreign.h"
#include "systems/musiclm/foreign_files.h"
#include "systems/musiclm/foreign_names.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task.h"
#include "train/trainer.h"

namespace melete {
namespace musiclm_import_test {

using namespace testing;
using ::testing::HasSubstr;

std::string package() {
  return MELETE_SOURCE_DIR "/tests/golden/musiclm/checkpoints/mulan.2.pt";
}

// Ids below the 100 that the file's text tower has.
class FewIds : public TextTokenizer {
 public:
  std::string kind() const override { return "few"; }
  int64_t vocabulary() const override { return 100; }
  const std::string& identity() const override { return identity_; }
  std::vector<int64_t> pieces(std::string_view text) const override {
    std::vector<int64_t> ids;
    for (const char byte : text.substr(0, 16)) ids.push_back(static_cast<unsigned char>(byte) % 98 + 2);
    return ids;
  }
  std::string text(const std::vector<int64_t>&) const override { return ""; }

 private:
  std::string identity_ = "few ids";
};

musiclm::MulanConfig config_of(const ImportedCheckpoint& imported) {
  musiclm::MulanConfig config;
  schema_of(config).apply(imported.checkpoint.meta.at("config").at("model"));
  return config;
}

TEST(MulanImport, PackagesComeOutAsTheyWentIn) {
  TemporaryFolder folder;
  const ImportedCheckpoint imported = import_foreign("musiclm-pytorch", package());
  EXPECT_EQ(imported.kind, "mulan");
  EXPECT_TRUE(imported.complete);
  EXPECT_EQ(imported.checkpoint.step(), 3);  // saved after the step that names it
  save_checkpoint(folder / "x.safetensors", imported.checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  EXPECT_EQ(content(package()), content(folder / "y.pt"));
}

// Without what was kept of the package, a new one is made: names, order and optimiser must be upstream's.
TEST(MulanImport, APackageMadeAnewIsTheSame) {
  TemporaryFolder folder;
  Checkpoint checkpoint = import_foreign("musiclm-pytorch", package()).checkpoint;
  checkpoint.meta.erase("foreign");
  save_checkpoint(folder / "x.safetensors", checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  auto theirs = content(package()), ours = content(folder / "y.pt");
  // A linspace and a window, whose last bits depend on the width of the processor's vectors and on LibTorch.
  for (auto* package_content : {&theirs, &ours})
    for (auto& entry : package_content->at("model").at("$ordered"))
      if (entry.at(0) == "audio.aug.0.phase_advance" || entry.at(0) == "audio.spec.window")
        entry.at(1).erase("sum");
  EXPECT_EQ(theirs.at("model").at("$ordered"), ours.at("model").at("$ordered"));
  EXPECT_EQ(theirs.at("optim"), ours.at("optim"));
}

TEST(MulanImport, ShapesTellTheSettings) {
  const ImportedCheckpoint imported = import_foreign("musiclm-pytorch", package());
  const musiclm::MulanConfig config = config_of(imported);
  EXPECT_EQ(config.dim, 16);
  EXPECT_EQ(config.audio.transformer.dim, 32);
  EXPECT_EQ(config.audio.transformer.depth, 2);
  EXPECT_EQ(config.audio.transformer.heads, 2);
  EXPECT_EQ(config.audio.transformer.head_dim, 16);
  EXPECT_EQ(config.audio.patch, (std::vector<int64_t>{16, 16}));
  EXPECT_EQ(config.audio.spectrogram.window, 24);
  EXPECT_NEAR(config.audio.augment.stretch, 0.8, 1e-9);
  EXPECT_EQ(config.text.transformer.dim, 24);
  EXPECT_EQ(config.text.vocabulary, 100);
  EXPECT_EQ(config.text.window, 16);
  EXPECT_EQ(config.contrast.kind, "decoupled");
  EXPECT_EQ(config.contrast_layers, 0);
  const auto& optimiser = imported.checkpoint.meta.at("config").at("task").at("optimiser");
  EXPECT_EQ(optimiser.at("learning_rate"), 0.001);
  EXPECT_EQ(optimiser.at("kind"), "adam");
}

TEST(MulanImport, GivenArgumentsSayWhatShapesCannot) {
  const musiclm::MulanConfig config = config_of(import_foreign("musiclm-pytorch", package(),
                                                               {{"audio.spec_n_fft", 256},
                                                                {"audio.patch_dropout_prob", 0.5},
                                                                {"decoupled_contrastive_learning", false}}));
  EXPECT_EQ(config.audio.spectrogram.n_fft, 256);
  EXPECT_EQ(config.audio.patch_dropout, 0.5);
  EXPECT_EQ(config.contrast.kind, "softmax");
  const auto error = [](const nlohmann::ordered_json& given) {
    return error_of([&] { import_foreign("musiclm-pytorch", package(), given); });
  };
  EXPECT_THAT(error({{"audio.dim", 64}}), HasSubstr("audio.dim = 64, the weights say 32"));
  EXPECT_THAT(error({{"audio.patch_size", {8, 16}}}), HasSubstr("the weights take 256"));
  EXPECT_THAT(error({{"text.haeds", 2}}), HasSubstr("no argument `haeds`"));
  EXPECT_THAT(error({{"merges", "/nowhere"}}), HasSubstr("there is no such list of merges"));
}

TEST(MulanImport, WhatIsExportedSaysHowToBuildIt) {
  TemporaryFolder folder;
  save_checkpoint(folder / "x.safetensors", import_foreign("musiclm-pytorch", package()).checkpoint);
  const auto notes = export_checkpoint(folder / "x.safetensors", folder / "y.pt", {});
  ASSERT_FALSE(notes.empty());
  EXPECT_THAT(notes.front(), HasSubstr("AudioSpectrogramTransformer(dim = 32, depth = 2"));
  EXPECT_THAT(notes.front(), HasSubstr("patch_size = (16,16)"));
  EXPECT_THAT(notes.front(), HasSubstr("dim_latent = 16"));
  EXPECT_FALSE(content(folder / "y.pt").contains("optim"));
}

// The arguments that we would write make the same configuration when they are read again.
TEST(MulanImport, ArgumentsComeBack) {
  musiclm::MulanConfig config = config_of(import_foreign("musiclm-pytorch", package()));
  config.audio.patch = {8, 4};
  config.audio.spectrogram.edges = "constant";
  config.audio.input = "bins";
  config.contrast.kind = "sigmoid";
  config.contrast_layers = 1;
  const musiclm_pytorch::MulanArguments arguments = musiclm_pytorch::arguments_of(config);
  musiclm::MulanConfig back = musiclm_pytorch::mulan_config(arguments.audio, arguments.text, arguments.mulan);
  config.audio.spectrogram.hop = config.audio.spectrogram.hop_samples();
  EXPECT_EQ(schema_of(back).json(), schema_of(config).json());
}

// Training goes on with the file's moments: one step from them differs from one step with fresh ones.
TEST(MulanImport, TrainingGoesOnWithItsOptimiser) {
  const ImportedCheckpoint imported = import_foreign("musiclm-pytorch", package());
  const auto step_once = [&](bool with_moments) {
    musiclm::MulanTaskConfig settings;
    schema_of(settings).apply(imported.checkpoint.meta.at("config").at("task"));
    musiclm::MulanTask task(config_of(imported), settings, std::make_shared<FewIds>(), 4, {});
    torch::manual_seed(5);
    Batch batch;
    batch.set("wave", 0.1 * at::randn({4, 800}));
    batch.set(Batch::length_column("wave"), at::full({4}, 800, at::kLong));
    batch.set_words("text", {"one", "two", "three", "four"});
    NoiseBatches source(batch);
    TrainerConfig config;
    config.steps = 10;
    config.ema.enabled = false;
    Trainer trainer({task, source}, config);
    Checkpoint start = imported.checkpoint;
    if (!with_moments)
      std::erase_if(start.tensors, [](const auto& item) { return item.first.starts_with("optimiser."); });
    trainer.load(start);
    EXPECT_EQ(trainer.steps_done(), 3);
    trainer.step();
    return task.mulan()->audio_head->weight.detach().clone();
  };
  const at::Tensor on = step_once(true), fresh = step_once(false);
  EXPECT_TRUE(at::isfinite(on).all().item<bool>());
  EXPECT_GT((on - fresh).abs().max().item<double>(), 1e-5);
}

TEST(MulanImport, PythonReadsWhatWeMake) {
  if (!python_has_torch()) GTEST_SKIP() << "no Python with torch here";
  TemporaryFolder folder;
  Checkpoint checkpoint = import_foreign("musiclm-pytorch", package()).checkpoint;
  checkpoint.meta.erase("foreign");
  save_checkpoint(folder / "x.safetensors", checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  EXPECT_TRUE(run_python(folder.path(), R"(
a, b = (torch.load(p, map_location='cpu') for p in sys.argv[1:3])
# As in APackageMadeAnewIsTheSame.
for name in ('audio.aug.0.phase_advance', 'audio.spec.window'):
    assert torch.allclose(*(package['model'].pop(name) for package in (a, b)), rtol=1e-6, atol=1e-7), name
assert same(a, b, '') > 100
)",
                         {package(), folder / "y.pt"}));
}

}  // namespace musiclm_import_test
}  // namespace melete
