// audiolm-pytorch's semantic, coarse and fine transformers in and out again, and trained on in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/random.h"
#include "foreign_files.h"
#include "io/base/audio_file.h"
#include "roles/tokenizers.h"
#include "run/run_folder.h"
#include "small_codec.h"
#include "systems/audiolm/foreign_files.h"
#include "systems/audiolm/load.h"
#include "systems/audiolm/stage_losses.h"
#include "systems/foreign.h"
#include "systems/system.h"

namespace melete {
namespace stage_import_test {

namespace fs = std::filesystem;
using namespace testing;
using ::testing::HasSubstr;

const std::vector<std::string> kKinds = {"semantic", "coarse", "fine"};
constexpr int64_t kTokens = 14, kCodes = 10, kQuantizers = 3;  // what the three files were trained on

std::string package_of(const std::string& kind) {
  return std::string(MELETE_SOURCE_DIR) + "/tests/golden/audiolm/checkpoints/" + kind + ".transformer.2.pt";
}

nlohmann::ordered_json model_settings(const ImportedCheckpoint& imported) {
  return imported.checkpoint.meta.at("config").at("model");
}

// Loudness as tokens of either kind, in the sizes of the three files.
at::Tensor loudness(const at::Tensor& audio, int64_t samples, int64_t classes) {
  const int64_t n = audio.size(1) / samples;
  const at::Tensor frames = audio.narrow(1, 0, n * samples).view({audio.size(0), n, samples});
  return frames.abs().mean(-1).mul(40).to(at::kLong).clamp(0, classes - 1);
}

class LoudnessTokens : public SemanticTokenizer {
 public:
  std::string kind() const override { return "loudness"; }
  int64_t rate_hz() const override { return 8000; }
  int64_t samples_per_token() const override { return 400; }
  int64_t codebook_size() const override { return kTokens; }
  const std::string& identity() const override { return identity_; }
  int64_t tokens(int64_t samples) const override { return samples / 400; }
  int64_t shortest_samples() const override { return 400; }
  at::Tensor tokenize(const at::Tensor& audio) const override { return loudness(audio, 400, kTokens); }

 private:
  std::string identity_ = "loudness tokens";
};

class LoudnessCodes : public Codec {
 public:
  std::string kind() const override { return "loudness"; }
  int64_t rate_hz() const override { return 8000; }
  int64_t samples_per_frame() const override { return 400; }
  int64_t codebook_size() const override { return kCodes; }
  int64_t quantizers() const override { return kQuantizers; }
  const std::string& identity() const override { return identity_; }
  int64_t frames(int64_t samples) const override { return samples / 400; }
  at::Tensor encode(const at::Tensor& audio) const override {
    const at::Tensor first = loudness(audio, 400, kCodes);
    return at::stack({first, (first * 3).remainder(kCodes), (first + 5).remainder(kCodes)}, 2);
  }
  at::Tensor decode(const at::Tensor& codes) const override {
    return at::zeros({codes.size(0), codes.size(1) * 400});
  }

 private:
  std::string identity_ = "loudness codes";
};

// A folder of tokens that the three can be trained on.
std::string write_tokens(const TemporaryFolder& folder) {
  for (int i = 0; i < 3; ++i) {
    std::vector<float> samples(8000);
    for (size_t at = 0; at < samples.size(); ++at)
      samples[at] = static_cast<float>(0.4 * std::sin(static_cast<double>(at) / (500.0 + 90 * i)));
    write_audio(folder / fmt::format("in/{}.wav", i), samples, 8000);
  }
  Tokenizers tokenizers;
  tokenizers.semantic = std::make_shared<LoudnessTokens>();
  tokenizers.codec = std::make_shared<LoudnessCodes>();
  const std::string tokens = folder.path() + "/tokens";
  tokenize_recordings(load_entries(folder.path() + "/in"), tokenizers, tokens, {});
  return tokens;
}

TEST(StageImport, PackagesComeOutAsTheyWentIn) {
  TemporaryFolder folder;
  for (const std::string& kind : kKinds) {
    const ImportedCheckpoint imported = import_foreign("audiolm-pytorch", package_of(kind));
    EXPECT_EQ(imported.kind, kind);
    EXPECT_TRUE(imported.complete);
    EXPECT_EQ(imported.checkpoint.step(), 3);  // saved in the third step, which was done
    save_checkpoint(folder / "x.safetensors", imported.checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
    EXPECT_EQ(content(package_of(kind)), content(folder / "y.pt")) << kind;
  }
}

TEST(StageImport, ShapesTellTheSettings) {
  for (const std::string& kind : kKinds) {
    const auto model = model_settings(import_foreign("audiolm-pytorch", package_of(kind)));
    EXPECT_EQ(model.at("dim"), 16);
    EXPECT_EQ(model.at("depth"), 2);
    EXPECT_EQ(model.at("heads"), 2);
    EXPECT_EQ(model.at("head_dim"), 8);
    EXPECT_EQ(model.at("text_dim"), 12);
    EXPECT_EQ(model.at("condition"), "none");
    if (kind != "fine") {
      EXPECT_EQ(model.at("semantic_tokens"), kTokens);
    }
    if (kind != "semantic") {
      EXPECT_EQ(model.at("codebook_size"), kCodes);
    }
    if (kind == "coarse") {
      EXPECT_EQ(model.at("quantizers"), 2);
    }
    if (kind == "fine") {
      EXPECT_EQ(model.at("coarse_quantizers"), 2);
      EXPECT_EQ(model.at("fine_quantizers"), 1);
      EXPECT_TRUE(model.at("positions_from_longest"));
    }
  }
  const auto task =
      import_foreign("audiolm-pytorch", package_of("coarse")).checkpoint.meta.at("config").at("task");
  EXPECT_EQ(task.at("optimiser").at("learning_rate"), 0.002);
}

TEST(StageImport, GivenArgumentsSayWhatShapesCannot) {
  const ImportedCheckpoint imported =
      import_foreign("audiolm-pytorch", package_of("coarse"),
                     {{"cond_as_self_attn_prefix", true}, {"attn_dropout", 0.25}, {"heads", 2}});
  EXPECT_EQ(model_settings(imported).at("condition"), "prefix");
  EXPECT_EQ(model_settings(imported).at("attention_dropout"), 0.25);
  const auto error = [](nlohmann::ordered_json given) {
    return error_of([&] { import_foreign("audiolm-pytorch", package_of("coarse"), given); });
  };
  EXPECT_THAT(error({{"heads", 4}}), HasSubstr("heads = 4, the weights say 2"));
  EXPECT_THAT(error({{"has_condition", true}}), HasSubstr("no cross attention"));
  EXPECT_THAT(error({{"haeds", 2}}), HasSubstr("no argument `haeds`"));
  TemporaryFolder folder;
  EXPECT_EQ(run_program({"import", "audiolm-pytorch", package_of("coarse"), "-o", folder / "x.safetensors",
                         "--arguments", "cond_as_self_attn_prefix=true,ff_dropout=0.1"}),
            0);
  EXPECT_EQ(load_checkpoint(folder / "x.safetensors").meta.at("config").at("model").at("condition"),
            "prefix");
  EXPECT_EQ(run_program({"import", "audiolm-pytorch", package_of("coarse"), "-o", folder / "y.safetensors",
                         "--arguments", "ff_dropout"}),
            2);
}

TEST(StageImport, ABareStateDictGivesTheSameModel) {
  TemporaryFolder folder;
  for (const std::string& kind : kKinds) {
    EditableFile file(package_of(kind));
    file.tree = file.tree.at("model");
    file.write(folder / "bare.pt");
    const ImportedCheckpoint whole = import_foreign("audiolm-pytorch", package_of(kind));
    const ImportedCheckpoint bare = import_foreign("audiolm-pytorch", folder / "bare.pt");
    EXPECT_FALSE(bare.complete);
    EXPECT_EQ(model_settings(bare), model_settings(whole));
    for (const auto& [name, tensor] : whole.checkpoint.tensors)
      if (name.starts_with("model.")) {
        EXPECT_TRUE(at::equal(tensor, bare.checkpoint.tensors.at(name))) << name;
      }
  }
}

// Without what was kept of the package, a new one is made: names, order and optimiser must be upstream's.
TEST(StageExport, APackageMadeAnewIsTheSame) {
  TemporaryFolder folder;
  for (const std::string& kind : kKinds) {
    Checkpoint checkpoint = import_foreign("audiolm-pytorch", package_of(kind)).checkpoint;
    checkpoint.meta.erase("foreign");
    save_checkpoint(folder / "x.safetensors", checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
    const auto theirs = content(package_of(kind)), ours = content(folder / "y.pt");
    EXPECT_EQ(theirs.at("model").at("$ordered"), ours.at("model").at("$ordered")) << kind;
    EXPECT_EQ(theirs.at("optim"), ours.at("optim")) << kind;
    EXPECT_EQ(theirs.at("version"), ours.at("version"));
  }
}

// With weight decay upstream has two groups, matrices first: every moment must find its weight again.
TEST(StageExport, WeightDecayMakesTwoGroups) {
  TemporaryFolder folder;
  for (const std::string& kind : kKinds) {
    Checkpoint checkpoint = import_foreign("audiolm-pytorch", package_of(kind)).checkpoint;
    checkpoint.meta.erase("foreign");
    checkpoint.meta["config"]["task"]["optimiser"]["weight_decay"] = 0.01;
    save_checkpoint(folder / "x.safetensors", checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
    const auto groups = content(folder / "y.pt").at("optim").at("param_groups");
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_EQ(groups[0].at("weight_decay"), 0.01);
    EXPECT_EQ(groups[1].at("weight_decay"), 0);
    EXPECT_EQ(groups[1].at("params").front(), groups[0].at("params").size());
    const Checkpoint back = import_foreign("audiolm-pytorch", folder / "y.pt").checkpoint;
    EXPECT_EQ(back.meta.at("config").at("task").at("optimiser").at("weight_decay"), 0.01);
    for (const auto& [name, tensor] : checkpoint.tensors)
      if (name.starts_with("optimiser.")) {
        EXPECT_TRUE(at::equal(tensor, back.tensors.at(name))) << name;
      }
  }
}

TEST(StageImport, TrainingGoesOnAndComesBack) {
  TemporaryFolder folder;
  const std::string tokens = write_tokens(folder);
  for (const std::string& kind : kKinds) {
    const std::string run = folder.path() + "/" + kind;
    ASSERT_EQ(run_program({"import", "audiolm-pytorch", package_of(kind), "-o", run}), 0);
    ASSERT_EQ(run_program({"train", kind, "--out", run, "--resume", "--data", tokens, "--steps", "5",
                           "--batch_size", "2", "--data.segment_seconds", "0", "--data.valid_fraction", "0",
                           "--threads", "1"}),
              0);
    const Checkpoint trained = latest_usable(run, [](const std::string&) {})->checkpoint;
    EXPECT_EQ(trained.step(), 5);
    const Checkpoint before = import_foreign("audiolm-pytorch", package_of(kind)).checkpoint;
    const std::string weight = "transformer.attention.0.query.weight";
    EXPECT_FALSE(at::equal(trained.tensors.at("model." + weight), before.tensors.at("model." + weight)));
    EXPECT_EQ(trained.tensors.at("optimiser.transformer." + weight + ".step").item<int64_t>(), 5);
    if (kind != "fine") {
      EXPECT_EQ(trained.meta.at("config").at("semantic_identity"), "loudness tokens");
    }

    // Back to upstream with its optimiser, and here again.
    export_checkpoint(run, folder / "back.pt", {ExportFor::training});
    const Checkpoint back = import_foreign("audiolm-pytorch", folder / "back.pt").checkpoint;
    EXPECT_EQ(back.step(), 5);
    for (const auto& [name, tensor] : trained.tensors)
      if (name.starts_with("model.") || name.starts_with("optimiser.")) {
        EXPECT_TRUE(at::equal(tensor, back.tensors.at(name))) << name;
      }
  }
}

TEST(StageImport, PythonReadsTheSame) {
  if (!python_has_torch()) GTEST_SKIP() << "python3-torch is not installed: torch.load was not tried";
  TemporaryFolder folder;
  const std::string script = R"(
first, second, anew, slim = (torch.load(p) for p in sys.argv[1:5])
count = same(first, second, '')
assert count > 100, count
assert same(first, anew, '') == count
assert set(slim) == {'model', 'version'}
same(first['model'], slim['model'], 'slim')
# The optimiser is one that torch takes back: parameters are those of the model without the norms' zeros.
parameters = [torch.nn.Parameter(v) for k, v in anew['model'].items() if not k.endswith('.beta')]
optimiser = torch.optim.Adam(parameters, lr = 1)
optimiser.load_state_dict(anew['optim'])
for p in parameters: p.grad = torch.ones_like(p)
optimiser.step()
assert optimiser.param_groups[0]['lr'] == 0.002
assert all(optimiser.state[p]['exp_avg'].shape == p.shape for p in parameters)
print(count, 'tensors are the same')
)";
  for (const std::string& kind : kKinds) {
    Checkpoint checkpoint = import_foreign("audiolm-pytorch", package_of(kind)).checkpoint;
    save_checkpoint(folder / "x.safetensors", checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "same.pt", {ExportFor::training});
    export_checkpoint(folder / "x.safetensors", folder / "slim.pt", {ExportFor::inference});
    checkpoint.meta.erase("foreign");
    save_checkpoint(folder / "x.safetensors", checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "anew.pt", {ExportFor::training});
    EXPECT_TRUE(run_python(folder.path(), script,
                           {package_of(kind), folder / "same.pt", folder / "anew.pt", folder / "slim.pt"}))
        << kind;
  }
}

// A stage that was never upstream's: its weights are read there, and here again as the same model.
TEST(StageExport, AStageOfOursIsImportedAgain) {
  TemporaryFolder folder;
  for (const std::string condition : {"none", "cross", "prefix"}) {
    torch::manual_seed(3);
    CoarseConfig config;
    config.stage.transformer = {24, 2, 3, 8, condition};
    config.stage.text_dim = 20;
    config.semantic_tokens = 9;
    config.codebook_size = 7;
    config.quantizers = 2;
    CoarseTransformer model(config);
    auto recipe = make_recipe("coarse");
    recipe->schema().apply({{"model", schema_of(config).json()}});
    Checkpoint made;
    made.meta = {{"step", 4}, {"task", "coarse"}, {"config", recipe->schema().json()}};
    for (const auto& item : model->named_parameters())
      made.tensors["model." + item.key()] = item.value().detach().clone();
    save_checkpoint(folder / "ours.safetensors", made);
    const auto notes =
        export_checkpoint(folder / "ours.safetensors", folder / "ours.pt", {ExportFor::inference});
    EXPECT_THAT(notes.front(), HasSubstr("CoarseTransformer(dim = 24, depth = 2, heads = 3"));
    nlohmann::ordered_json given;
    if (condition == "prefix") given["cond_as_self_attn_prefix"] = true;
    const ImportedCheckpoint back = import_foreign("audiolm-pytorch", folder / "ours.pt", given);
    EXPECT_EQ(model_settings(back).at("condition"), condition);
    for (const auto& [name, tensor] : made.tensors)
      EXPECT_TRUE(at::equal(tensor, back.checkpoint.tensors.at(name))) << name;
    EXPECT_THAT(error_of([&] {
                  export_checkpoint(folder / "ours.safetensors", folder / "z.pt", {ExportFor::training});
                }),
                HasSubstr("--for finetune"));
  }
}

TEST(StageImport, ImportedStagesMakeSound) {
  TemporaryFolder folder;
  for (const std::string& kind : kKinds)
    ASSERT_EQ(run_program({"import", "audiolm-pytorch", package_of(kind), "-o",
                           folder / ("runs/" + kind + ".safetensors")}),
              0);
  auto settings = small_codec_settings();
  settings["model"]["codec"]["quantizer"] = {{"quantizers", kQuantizers}, {"codebook_size", kCodes}};
  save_checkpoint(folder / "runs/codec.safetensors", small_codec_checkpoint(1, settings));
  std::vector<float> noise(24000);
  Rng rng(1);
  for (float& sample : noise) sample = static_cast<float>(0.3 * rng.normal());
  write_audio(folder / "in/noise.wav", noise, 8000);
  ASSERT_EQ(
      run_program({"train", "kmeans", "--features", "mfcc", "--clusters", std::to_string(kTokens), "--data",
                   folder.path() + "/in", "-o", folder / "runs/tokenizer.safetensors", "--threads", "1"}),
      0);
  EXPECT_EQ(run_program({"generate", "audiolm", "--from", folder.path() + "/runs", "--seconds", "0.1", "-o",
                         folder / "out.wav", "--threads", "1"}),
            0);
  EXPECT_GT(read_audio(folder / "out.wav").samples.size(), 700u);
  write_small_codec(folder / "other.safetensors", 1);
  EXPECT_EQ(run_program({"generate", "audiolm", "--from", folder.path() + "/runs", "--codec",
                         folder / "other.safetensors", "--seconds", "0.1", "-o", folder / "no.wav"}),
            1);
}

TEST(StageImport, RefusesBrokenFiles) {
  TemporaryFolder folder;
  const auto error = [&](const std::string& kind, const std::function<void(EditableFile&)>& change) {
    EditableFile file(package_of(kind));
    change(file);
    file.write(folder / "broken.pt");
    return error_of([&] { import_foreign("audiolm-pytorch", folder / "broken.pt"); });
  };
  for (const char* name : {"to_logits.weight", "semantic_embedding.weight", "transformer.norm.gamma",
                           "transformer.layers.1.2.1.weight", "transformer.layers.0.0.to_kv.weight"})
    EXPECT_THAT(error("semantic", [&](EditableFile& file) { file.erase("model", name); }), HasSubstr(name));
  const auto reshaped = [&](const std::string& kind, const std::string& name, std::vector<int64_t> shape) {
    return error(kind, [&](EditableFile& file) { file.tensors.at(name).shape = std::move(shape); });
  };
  EXPECT_THAT(reshaped("semantic", "model.transformer.layers.0.0.to_kv.weight", {1, 256}),
              HasSubstr("not a number of heads"));
  EXPECT_THAT(reshaped("semantic", "model.transformer.layers.1.0.to_q.weight", {8, 32}),
              HasSubstr("columns"));
  EXPECT_THAT(reshaped("semantic", "model.start_token", {4, 4}), HasSubstr("start_token"));
  EXPECT_THAT(reshaped("coarse", "model.coarse_logit_weights", {1, 22, 16}), HasSubstr("embedding"));
  EXPECT_THAT(reshaped("fine", "model.fine_logit_weights", {10, 1, 16}), HasSubstr("logit"));
  EXPECT_THAT(reshaped("coarse", "optim.state.0.exp_avg", {4, 4}), HasSubstr("does not have the shape"));
  EXPECT_THAT(
      error("fine", [](EditableFile& file) { file.tree["optim"]["param_groups"][0]["params"].erase(0); }),
      HasSubstr("an optimiser of 32 parameters, the model has 33"));
  EXPECT_THAT(
      error("fine", [](EditableFile& file) { file.tree["optim"]["state"]["$dict"][0][1].erase("exp_avg"); }),
      HasSubstr("exp_avg"));
  // A layer far away would make a model of a size that the file does not have.
  EXPECT_THAT(error("semantic",
                    [](EditableFile& file) {
                      file.tree["model"]["$ordered"].push_back(
                          {"transformer.layers.9998.0.to_q.weight", {{"$tensor", "model.start_token"}}});
                    }),
              HasSubstr("transformer.layers.2."));
  // What the norms never learn there would be lost here.
  EXPECT_THAT(error("semantic",
                    [](EditableFile& file) {
                      file.tensors.at("model.transformer.norm.beta").bytes =
                          file.tensors.at("model.transformer.norm.gamma").bytes;
                    }),
              HasSubstr("all zeros"));
  EXPECT_THAT(
      error(
          "semantic",
          [](EditableFile& file) {
            file.tree["model"]["$ordered"].push_back({"another.weight", {{"$tensor", "model.start_token"}}});
          }),
      HasSubstr("another.weight"));
  const std::string bytes = read_bytes(package_of("fine"));
  for (const size_t size : {size_t{0}, size_t{100}, bytes.size() / 2, bytes.size() - 30}) {
    write_bytes(folder / "short.pt", bytes.substr(0, size));
    EXPECT_NE(error_of([&] { import_foreign("audiolm-pytorch", folder / "short.pt"); }), "") << size;
  }
}

}  // namespace stage_import_test
}  // namespace melete
