// audiolm-pytorch's files in and out again: the same tensors, bit for bit, under the same names.
#include "systems/foreign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/pickle_bytes.h"
#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "foreign_files.h"
#include "io/base/audio_file.h"
#include "io/base/file_content.h"
#include "io/base/zip_archive.h"
#include "io/pickled_tensors.h"
#include "roles/open.h"
#include "small_codec.h"
#include "systems/foreign.h"
#include "systems/soundstream/foreign_files.h"
#include "systems/soundstream/load.h"

namespace melete {
namespace import_test {

namespace fs = std::filesystem;
using namespace testing;
using ::testing::HasSubstr;

const std::string kPackage =
    std::string(MELETE_SOURCE_DIR) + "/tests/golden/audiolm/checkpoints/soundstream.2.pt";
const std::string kSemantic =
    std::string(MELETE_SOURCE_DIR) + "/tests/golden/audiolm/checkpoints/semantic.transformer.2.pt";

TEST(Import, PackageComesOutAsItWentIn) {
  TemporaryFolder folder;
  const ImportedCheckpoint imported = import_foreign("audiolm-pytorch", kPackage);
  EXPECT_EQ(imported.kind, "soundstream");
  EXPECT_TRUE(imported.complete);
  EXPECT_EQ(imported.checkpoint.step(), 3);  // saved in the third step, which was done
  save_checkpoint(folder / "x.safetensors", imported.checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  EXPECT_EQ(content(kPackage), content(folder / "y.pt"));
}

TEST(Import, DerivedTensorsAreWhatUpstreamSaved) {
  const TorchFile file(kPackage);
  const TensorMap state = tensors_below(*file.root().find("model"), file.mapping());
  const ImportedCheckpoint imported = import_foreign("audiolm-pytorch", kPackage);
  SoundStreamGanConfig config;
  schema_of(config).apply(imported.checkpoint.meta.at("config").at("model"));
  const TensorMap derived = audiolm_pytorch::derived_tensors(config);
  EXPECT_FALSE(derived.empty());
  for (const auto& [name, tensor] : derived) {
    ASSERT_TRUE(state.count(name)) << name;
    EXPECT_TRUE(at::allclose(tensor, state.at(name), 1e-5, 1e-6)) << name;
  }
}

TEST(Import, PythonReadsTheSame) {
  if (!python_has_torch()) GTEST_SKIP() << "python3-torch is not installed: torch.load was not tried";
  TemporaryFolder folder;
  save_checkpoint(folder / "x.safetensors", import_foreign("audiolm-pytorch", kPackage).checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  export_checkpoint(folder / "x.safetensors", folder / "inference.pt", {ExportFor::inference});
  const std::string script = R"(
import pickle
first, second, slim = (torch.load(p) for p in sys.argv[1:4])
count = same(first, second, '')
assert count > 700, count
ema = {k[10:]: v for k, v in first['ema_model'].items() if k.startswith('ema_model.')}
assert slim['version'] == first['version'] and pickle.loads(slim['config']) == pickle.loads(first['config'])
assert set(slim) == {'model', 'config', 'version'}
for k, v in slim['model'].items():
    assert torch.equal(v, ema[k]) and v.shape == ema[k].shape, k
missing = [k for k in ema if k not in slim['model']]
assert all(k.startswith(('discriminators.', 'stft_discriminator.')) for k in missing), missing
print(count, 'tensors are the same')
)";
  EXPECT_TRUE(run_python(folder.path(), script, {kPackage, folder / "y.pt", folder / "inference.pt"}));
}

TEST(Import, BareFilesGiveTheSameModel) {
  TemporaryFolder folder;
  const ImportedCheckpoint package = import_foreign("audiolm-pytorch", kPackage);
  save_checkpoint(folder / "x.safetensors", package.checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "saved.pt", {ExportFor::finetune});
  // As torch.save(model.state_dict()) writes it: the weights alone.
  const TorchFile saved(folder / "saved.pt");
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  std::map<std::string, TensorBytes> tensors;
  for (const auto& [key, value] : saved.root().find("model")->dict()->entries) {
    const PickleTensor& tensor = *value->tensor();
    tensors[*key->text()] = {*key->text(), *tensor.dtype, tensor.shape, tensor.bytes};
    entries.push_back({*key->text(), {{"$tensor", *key->text()}}});
  }
  write_torch_file(folder / "bare.pt", {{"$ordered", entries}}, tensors);
  const ImportedCheckpoint from_saved = import_foreign("audiolm-pytorch", folder / "saved.pt");
  const ImportedCheckpoint from_bare = import_foreign("audiolm-pytorch", folder / "bare.pt");
  EXPECT_FALSE(from_saved.complete);
  EXPECT_THAT(from_bare.notes.front(), HasSubstr("no settings"));
  for (const auto* imported : {&from_saved, &from_bare})
    for (const auto& [name, tensor] : imported->checkpoint.tensors)
      if (name.starts_with("model.")) {
        EXPECT_TRUE(at::equal(tensor, package.checkpoint.tensors.at("ema.average." + name.substr(6))))
            << name;
      }
}

TEST(Import, TrainingGoesOnAndTheCodecCodes) {
  TemporaryFolder folder;
  const std::string run = folder.path() + "/run";
  EXPECT_EQ(run_program({"import", "audiolm-pytorch", kPackage, "-o", run}), 0);
  for (int i = 0; i < 2; ++i)
    write_audio(folder / fmt::format("in/{}.wav", i), std::vector<float>(16000, 0.1f), 16000);
  EXPECT_EQ(run_program({"train", "soundstream", "--out", run, "--resume", "--data", folder.path() + "/in",
                         "--steps", "5", "--batch_size", "1", "--data.segment_seconds", "0.1",
                         "--data.valid_fraction", "0", "--threads", "1"}),
            0);
  const LoadedCodec trained = load_codec(run);
  EXPECT_EQ(trained.step, 5);
  EXPECT_TRUE(trained.averaged);
  EXPECT_EQ(run_program({"codec", "encode", folder.path() + "/in", "--from", run, "-o",
                         folder.path() + "/tokens", "--threads", "1"}),
            0);
}

TEST(Export, WeightsAloneMakeTheSameTokens) {
  TemporaryFolder folder;
  save_checkpoint(folder / "x.safetensors", import_foreign("audiolm-pytorch", kPackage).checkpoint);
  const std::string identity = open_codec(folder / "x.safetensors")->identity();
  export_checkpoint(folder / "x.safetensors", folder / "slim.safetensors", {ExportFor::inference});
  EXPECT_EQ(open_codec(folder / "slim.safetensors")->identity(), identity);
  EXPECT_LT(fs::file_size(folder / "slim.safetensors"), fs::file_size(folder / "x.safetensors") / 3);
  for (const FileTensor& tensor : read_file_content(folder / "slim.safetensors").tensors)
    EXPECT_TRUE(tensor.name.starts_with("model.codec.")) << tensor.name;
  export_checkpoint(folder / "x.safetensors", folder / "tune.safetensors", {ExportFor::finetune});
  bool discriminators = false;
  for (const FileTensor& tensor : read_file_content(folder / "tune.safetensors").tensors)
    discriminators |= tensor.name.starts_with("model.discriminators.");
  EXPECT_TRUE(discriminators);
  EXPECT_THAT(error_of([&] {
                export_checkpoint(folder / "x.safetensors", folder / "y.txt", {ExportFor::inference});
              }),
              HasSubstr(".pt"));
}

TEST(Export, AModelOfOursIsImportedAgain) {
  TemporaryFolder folder;
  auto settings = small_codec_settings();
  settings["model"]["codec"]["as_audiolm_pytorch"] = true;
  const Checkpoint made = small_codec_checkpoint(4, settings);
  save_checkpoint(folder / "ours.safetensors", made);
  export_checkpoint(folder / "ours.safetensors", folder / "ours.pt", {ExportFor::finetune});
  const ImportedCheckpoint back = import_foreign("audiolm-pytorch", folder / "ours.pt");
  for (const auto& [name, tensor] : made.tensors)
    EXPECT_TRUE(at::equal(tensor, back.checkpoint.tensors.at(name))) << name;
  EXPECT_THAT(error_of([&] {
                export_checkpoint(folder / "ours.safetensors", folder / "z.pt", {ExportFor::training});
              }),
              HasSubstr("holds no optimiser; try --for finetune"));
}

TEST(Import, SaysWhichVersionMadeTheFile) {
  const ImportedCheckpoint imported = import_foreign("audiolm-pytorch", kPackage);
  EXPECT_THAT(imported.notes, ::testing::Contains(HasSubstr("made by audiolm-pytorch 2.0.7")));
  TemporaryFolder folder;
  EditableFile file(kPackage);
  file.tree.erase("version");
  file.write(folder / "unsaid.pt");
  EXPECT_THAT(import_foreign("audiolm-pytorch", folder / "unsaid.pt").notes,
              ::testing::Contains(HasSubstr("does not say which version")));
}

TEST(Export, NamesStandAsPyTorchListsThem) {
  std::vector<std::string> theirs;
  const TorchFile file(kPackage);
  for (const auto& [key, value] : file.root().find("model")->dict()->entries) theirs.push_back(*key->text());
  std::vector<std::string> sorted = theirs;
  std::reverse(sorted.begin(), sorted.end());
  audiolm_pytorch::sort_as_theirs_codec(sorted);
  EXPECT_EQ(sorted, theirs);
}

// Options of the quantizer go out and come in again.
TEST(Export, QuantizerOptionsAreArgumentsThere) {
  SoundStreamGanConfig config = audiolm_pytorch::soundstream_config(nlohmann::ordered_json::object());
  QuantizerConfig& q = config.codec.quantizer;
  EXPECT_FALSE(audiolm_pytorch::soundstream_arguments(config).contains("rq_kwargs"));
  q.cosine = q.shared_codebook = q.cross_entropy_commitment = q.orthogonal_active_only = true;
  q.differentiable_choice = q.reinmax = q.commitment_gradient_of_moved = true;
  q.orthogonal_weight = 10;
  q.orthogonal_max_codes = 64;
  q.synchronous_update = 0.2;
  q.codebook_dim = 8;
  q.epsilon = 1e-4;
  for (const char* update : {"gradient", "none", "average"}) {
    q.codebook_update = update;
    const auto arguments = audiolm_pytorch::soundstream_arguments(config);
    SoundStreamGanConfig back =
        audiolm_pytorch::soundstream_config({{"rq_kwargs", arguments.at("rq_kwargs")}});
    EXPECT_EQ(schema_of(back.codec.quantizer).json(), schema_of(q).json());
  }
}

TEST(Import, QuantizersTakeWhatFitsAResidualChain) {
  const auto quantizer = [](const nlohmann::ordered_json& arguments) {
    return audiolm_pytorch::soundstream_config({{"rq_kwargs", arguments}}).codec.quantizer;
  };
  const QuantizerConfig affine = quantizer({{"affine_param", true}, {"affine_param_batch_decay", 0.5}});
  EXPECT_TRUE(affine.affine);
  EXPECT_EQ(affine.affine_vectors_decay, 0.5);
  EXPECT_EQ(quantizer({{"heads", 1}, {"channel_last", true}, {"num_codebooks", 1}}).codebooks, 1);
  EXPECT_THROW(quantizer({{"heads", 2}}), Error);
  EXPECT_THROW(quantizer({{"num_codebooks", 2}}), Error);
}

// A run that was never a package: what its own trainer saved, in another program's words, and back again.
TEST(Export, ACodecBornHereIsATrainingPackage) {
  TemporaryFolder folder;
  const std::string run = folder.path() + "/run", data = folder.path() + "/in";
  for (int i = 0; i < 3; ++i)
    write_audio(folder / fmt::format("in/{}.wav", i), std::vector<float>(16000, 0.1f), 8000);
  auto settings = small_codec_settings();
  settings["model"]["codec"]["as_audiolm_pytorch"] = true;
  for (const double decay : {0.0, 0.01}) {
    std::vector<std::string> words = {"train",
                                      "soundstream",
                                      "--out",
                                      run,
                                      "--data",
                                      data,
                                      "--steps",
                                      "3",
                                      "--batch_size",
                                      "2",
                                      "--data.segment_seconds",
                                      "0.2",
                                      "--threads",
                                      "1",
                                      "--fresh",
                                      "--train.ema.update_after_step",
                                      "1",
                                      "--train.ema.update_every",
                                      "1"};
    for (const char* phase : {"generator", "discriminator"}) {
      words.push_back(fmt::format("--{}.optimiser.weight_decay", phase));
      words.push_back(fmt::format("{}", decay));
    }
    const auto flatten = [&](const auto& self, const nlohmann::ordered_json& part,
                             const std::string& at) -> void {
      for (const auto& [name, value] : part.items()) {
        if (value.is_object()) {
          self(self, value, at + name + ".");
        } else {
          words.push_back("--" + at + name);
          words.push_back(value.dump());
        }
      }
    };
    flatten(flatten, settings, "");
    ASSERT_EQ(run_program(words), 0);
    const Checkpoint before = open_checkpoint(run, "test").checkpoint;
    const auto notes = export_checkpoint(run, folder / "package.pt", {ExportFor::training});
    EXPECT_THAT(notes, ::testing::Contains(HasSubstr("soundstream.2.pt")));
    const ImportedCheckpoint back = import_foreign("audiolm-pytorch", folder / "package.pt");
    EXPECT_TRUE(back.complete);
    EXPECT_EQ(back.checkpoint.step(), 3);
    int64_t compared = 0;
    for (const auto& [name, tensor] : before.tensors) {
      if (!name.starts_with("model.") && !name.starts_with("optimiser.") && !name.starts_with("ema.average."))
        continue;
      ASSERT_TRUE(back.checkpoint.tensors.count(name)) << name;
      EXPECT_TRUE(at::equal(tensor, back.checkpoint.tensors.at(name).to(tensor.scalar_type()))) << name;
      ++compared;
    }
    EXPECT_GT(compared, 300);
    const auto& there = back.checkpoint.meta.at("config").at("generator").at("optimiser");
    EXPECT_EQ(there.at("weight_decay").get<double>(), decay);
    EXPECT_EQ(there.at("learning_rate"),
              before.meta.at("config").at("generator").at("optimiser").at("learning_rate"));
  }
}

TEST(Import, RefusesWhatItDoesNotKnow) {
  TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { import_foreign("audiolm-pytorch", folder / "absent.pt"); }),
              HasSubstr("cannot be opened"));
  write_bytes(folder / "text.pt", "hello");
  EXPECT_THAT(error_of([&] { import_foreign("audiolm-pytorch", folder / "text.pt"); }),
              HasSubstr("torch.save"));
  const auto archive = [&](const std::string& pickle) {
    AtomicFile file(folder / "evil.pt");
    ZipWriter zip(file);
    zip.add("evil/data.pkl", pickle);
    zip.finish();
    file.commit();
    return error_of([&] { import_foreign("audiolm-pytorch", folder / "evil.pt"); });
  };
  EXPECT_THAT(archive(proto() + global("os", "system") + "(" + text("true") + "tR."),
              HasSubstr("`os.system`"));
  EXPECT_THAT(archive(proto() +
                      dict(text("model") + dict(text("w") + number(1)) + text("config") +
                           bytes(proto() + global("builtins", "eval") + "(" + text("1") + "tR.")) +
                      "."),
              HasSubstr("not a model that melete can import"));
}

TEST(Inspect, TellsWhatIsInAPackage) {
  const FileContent content = read_file_content(kSemantic);
  EXPECT_EQ(content.format, "torch (zip)");
  bool version = false, weight = false;
  for (const auto& [name, text] : content.facts) version |= name == "version" && text == "'2.0.7'";
  for (const FileTensor& tensor : content.tensors) weight |= tensor.name == "model.to_logits.weight";
  EXPECT_TRUE(version);
  EXPECT_TRUE(weight);
  int64_t equal = 0;
  EXPECT_TRUE(compare_files(content, content, equal).empty());
  EXPECT_EQ(equal, static_cast<int64_t>(content.tensors.size()));
  EXPECT_EQ(run_program({"inspect", "--diff", kPackage, kPackage}), 0);
  EXPECT_EQ(run_program({"inspect", "--diff", kPackage, kSemantic}), 1);
  EXPECT_EQ(run_program({"inspect", "--summary", kPackage}), 0);
  EXPECT_EQ(run_program({"inspect"}), 2);
}

}  // namespace import_test
}  // namespace melete
