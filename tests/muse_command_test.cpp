// Muse by the command line, on small models that nobody trained: pictures in two stages, what a mask keeps,
// filmstrips, many texts at once, files of muse-maskgit-pytorch, and settings that would be without effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "data/base/synth_pictures.h"
#include "data/pictures.h"
#include "data/token_folder.h"
#include "foreign_files.h"
#include "io/base/picture_file.h"
#include "io/pickled_tensors.h"
#include "pretrained/import.h"
#include "pretrained/t5.h"
#include "run/frozen_file.h"
#include "systems/foreign.h"
#include "systems/muse/foreign_names.h"
#include "systems/muse/load.h"
#include "systems/muse/muse.h"
#include "systems/muse/system.h"
#include "untrained_checkpoint.h"

namespace melete {
namespace muse_command_test {

using namespace testing;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
namespace foreign = muse_maskgit_pytorch;

constexpr int64_t kTextDim = 16, kCodes = 64, kSmall = 16, kLarge = 32;  // pixels

struct Said {
  int code;
  std::string errors;
};
Said melete(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_program(words);
  ::testing::internal::GetCapturedStdout();
  return {code, ::testing::internal::GetCapturedStderr()};
}

// Without residual blocks, and so without normalisation over the whole picture: a pixel depends on the tokens
// near it alone.
Json small_vqgan() {
  return {{"data", {{"height", kSmall}}},
          {"model",
           {{"vae",
             {{"dim", 8},
              {"layers", 2},
              {"groups", 4},
              {"residual_blocks", {0, 0}},
              {"quantizer", {{"kind", "lfq"}, {"codebook_size", kCodes}}}}}}}};
}

Json small_maskgit(const std::string& vqgan, int64_t height) {
  return {
      {"vqgan_from", vqgan},
      {"data", {{"height", height}}},
      {"model",
       {{"transformer",
         {{"tokens", kCodes}, {"positions", 0}, {"dim", 16}, {"depth", 1}, {"heads", 2}, {"head_dim", 8}}},
        {"text", {{"dim", kTextDim}, {"depth", 1}, {"heads", 2}, {"head_dim", 8}}}}}};
}

class MuseCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    save_checkpoint(vqgan(), untrained_checkpoint(kVqganTask, small_vqgan()));
    save_checkpoint(base(), untrained_checkpoint(kMaskGitTask, small_maskgit(vqgan(), kSmall)));
    Json larger = small_maskgit(vqgan(), kLarge);
    larger["super_resolution"] = true;
    larger["model"]["transformer"]["condition_doublings"] = 1;
    save_checkpoint(large(), untrained_checkpoint(kMaskGitTask, larger));
  }

  std::string vqgan() const { return folder_ / "vqgan.safetensors"; }
  std::string base() const { return folder_ / "base.safetensors"; }
  std::string large() const { return folder_ / "large.safetensors"; }

  std::vector<std::string> words(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"generate", "muse", "--from", base(), "--steps", "3", "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Image made(const std::vector<std::string>& more) const {
    auto all = words(more);
    const std::string out = folder_ / "out.png";
    all.insert(all.end(), {"-o", out});
    const Said said = melete(all);
    EXPECT_EQ(said.code, 0) << said.errors;
    return said.code == 0 ? read_png(out) : Image(1, 1);
  }

  TemporaryFolder folder_;
};

// A picture that changes everywhere.
Image colourful(int side) {
  Image image(side, side);
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x)
      for (int channel = 0; channel < 3; ++channel)
        image.rgb[static_cast<size_t>(3 * (y * side + x) + channel)] =
            static_cast<uint8_t>((37 * x + 71 * y + 90 * channel * (x / 4 + y / 4)) % 256);
  return image;
}

// As the tokens of the picture show it.
Image as_tokens_show(const std::string& vqgan, const std::string& path, int64_t side) {
  const auto tokenizer = muse::open_picture_tokenizer(vqgan);
  PicturePreparation how;
  how.height = side;
  const at::Tensor picture = picture_tensor(prepare_picture(read_picture(path).image, how, {})).unsqueeze(0);
  return picture_image(tokenizer->pictures(tokenizer->tokens(picture), side, side)[0].clamp(0, 1));
}

// Pixels of the left half, but for what lies near the other: how many differ?
int differing(const Image& a, const Image& b, int columns) {
  int count = 0;
  for (int y = 0; y < a.height; ++y)
    for (int x = 0; x < columns; ++x)
      for (int channel = 0; channel < 3; ++channel) {
        const auto at = static_cast<size_t>(3 * (y * a.width + x) + channel);
        count += a.rgb[at] != b.rgb[at] ? 1 : 0;
      }
  return count;
}

// As when a run goes on after its tokens were learned.
TEST_F(MuseCommands, AnotherVqganIsRefusedWithWhatToDo) {
  const std::string other = folder_ / "other.safetensors";
  Json settings = small_vqgan();
  settings["model"]["vae"]["dim"] = 4;
  save_checkpoint(other, untrained_checkpoint(kVqganTask, settings));
  const Said said = melete(words({"--text", "a star", "--vqgan", other, "-o", folder_ / "out.png"}));
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.errors, HasSubstr("[VQ-GAN] " + base() + " was trained with another one"));
  EXPECT_THAT(said.errors, HasSubstr("give its checkpoint of then: --vqgan RUN"));
}

// The 8 x 8 tokens of a picture are the 4 x 4 of one half as high, doubled once.
TEST_F(MuseCommands, PlacesOfTheSmallerPictureComeFromItsSize) {
  const auto columns = [&](int64_t doublings, int64_t smaller_height) {
    Json settings = small_maskgit(vqgan(), kLarge);
    settings["smaller_height"] = smaller_height;
    settings["model"]["transformer"]["condition_doublings"] = doublings;
    const auto config = untrained_checkpoint(kMaskGitTask, settings).meta.at("config");
    return config.at("model").at("transformer").at("condition_columns").get<int64_t>();
  };
  EXPECT_EQ(columns(1, 16), 4);
  EXPECT_EQ(columns(2, 8), 2);
  EXPECT_EQ(columns(0, 16), 0);
  try {
    columns(2, 16);
    FAIL() << "4 x 4, doubled twice, are 16 x 16";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("4 x 4 places, doubled 2 times, are not the 8 x 8 of the picture"));
  }
}

TEST_F(MuseCommands, AMaskKeepsTheRestInBothStages) {
  write_png(folder_ / "in.png", colourful(kLarge));
  Image mask(kLarge, kLarge, 0);  // black; its right quarter is white
  for (int y = 0; y < kLarge; ++y)
    for (int x = kLarge * 3 / 4; x < kLarge; ++x)
      for (int channel = 0; channel < 3; ++channel)
        mask.rgb[static_cast<size_t>(3 * (y * kLarge + x) + channel)] = 255;
  write_png(folder_ / "mask.png", mask);
  const std::vector<std::string> painting = {"--text",           "a star", "--image",
                                             folder_ / "in.png", "--mask", folder_ / "mask.png"};
  const Image small = made(painting), shown = as_tokens_show(vqgan(), folder_ / "in.png", kSmall);
  ASSERT_EQ(small.width, kSmall);
  EXPECT_EQ(differing(small, shown, kSmall / 2), 0);
  EXPECT_GT(differing(small, shown, kSmall), 0) << "nothing was made anew";

  auto in_two = painting;
  in_two.insert(in_two.end(), {"--large", large()});
  const Image big = made(in_two), shown_large = as_tokens_show(vqgan(), folder_ / "in.png", kLarge);
  ASSERT_EQ(big.width, kLarge);
  EXPECT_EQ(differing(big, shown_large, kLarge / 2), 0);
  EXPECT_GT(differing(big, shown_large, kLarge), 0);
  // A variation is made anew at the larger size.
  const Image varied =
      made({"--text", "a star", "--image", folder_ / "in.png", "--strength", "0.3", "--large", large()});
  EXPECT_GT(differing(varied, shown_large, kLarge / 2), 0);
}

TEST_F(MuseCommands, AFilmHasARowOfEachStage) {
  constexpr int kGap = 2;
  const std::string film = folder_ / "film.png";
  made({"--text", "a star", "--save-steps", film});
  Image strip = read_png(film);
  EXPECT_EQ(strip.width, 3 * (kSmall + kGap) + kGap);
  EXPECT_EQ(strip.height, kSmall + 2 * kGap);
  const Image large_one = made({"--text", "a star", "--save-steps", film, "--large", large()});
  strip = read_png(film);
  EXPECT_EQ(strip.width, 3 * (kLarge + kGap) + kGap);
  EXPECT_EQ(strip.height, 2 * (kLarge + kGap) + kGap);
  // The last picture of the film is the one that was written.
  Image last(kLarge, kLarge);
  for (int y = 0; y < kLarge; ++y)
    for (int x = 0; x < 3 * kLarge; ++x)
      last.rgb[static_cast<size_t>(3 * y * kLarge + x)] = strip.rgb[static_cast<size_t>(
          3 * ((kLarge + 2 * kGap + y) * strip.width) + 3 * (2 * (kLarge + kGap) + kGap) + x)];
  EXPECT_EQ(differing(last, large_one, kLarge), 0);
}

TEST_F(MuseCommands, TextsTogetherAreTextsOneByOne) {
  std::ofstream(folder_ / "texts.txt") << "a red star\n\na blue circle on black\na cross\n";
  std::vector<std::string> files;
  for (const char* batch : {"1", "2"}) {
    const std::string out = folder_ / fmt::format("batch{}/made.png", batch);
    const Said said = melete(words(
        {"--texts", folder_ / "texts.txt", "--batch", batch, "--no-grid", "--large", large(), "-o", out}));
    ASSERT_EQ(said.code, 0) << said.errors;
  }
  for (int i = 0; i < 3; ++i) {
    const std::string name = fmt::format("made_{}", i);
    EXPECT_EQ(differing(read_png(folder_ / ("batch1/" + name + ".png")),
                        read_png(folder_ / ("batch2/" + name + ".png")), kLarge),
              0)
        << i;
  }
  EXPECT_EQ(read_bytes(folder_ / "batch2/made_1.txt"), "a blue circle on black\n");
}

// With one token to choose from, noise has no say.
TEST_F(MuseCommands, TopKLimitsTheChoice) {
  const auto with = [&](const char* seed, const char* top) {
    return made({"--text", "a star", "--seed", seed, "--top-k", top, "--temperature", "4"});
  };
  EXPECT_EQ(differing(with("1", "1"), with("2", "1"), kSmall), 0);
  EXPECT_GT(differing(with("1", "0"), with("2", "0"), kSmall), 0);
}

TEST_F(MuseCommands, WhatWouldBeWithoutEffectIsRefusedByName) {
  write_png(folder_ / "in.png", colourful(kSmall));
  const std::string in = folder_ / "in.png";
  const std::vector<std::pair<std::vector<std::string>, std::string>> all = {
      {{"--mask", in}, "give --image"},
      {{"--strength", "0.5"}, "--strength"},
      {{"--image", in, "--mask", in, "--strength", "0.5"}, "--strength"},
      {{"--negative", "a square", "--guidance", "1"}, "--negative"},
      {{"--top-k", "4", "--filter-threshold", "0.5"}, "--top_k"},
      {{"--large-vqgan", vqgan()}, "--large"},
      {{"--critic"}, "model.critic"},
  };
  for (const auto& [more, wanted] : all) {
    auto these = words({"--text", "a star", "-o", folder_ / "none.png"});
    these.insert(these.end(), more.begin(), more.end());
    const Said said = melete(these);
    EXPECT_EQ(said.code, 2) << more.front();
    EXPECT_THAT(said.errors, HasSubstr(wanted));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.png"));
}

// Files that end too early are used as far as they go, named and counted.
TEST_F(MuseCommands, DamagedPicturesAreNamedAndCounted) {
  synth_pictures({folder_ / "shapes", 3, 1, kSmall});
  const std::string whole = encode_jpeg(colourful(64), 90);
  write_bytes(folder_ / "shapes/cut.jpg", whole.substr(0, whole.size() * 2 / 3));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"images", "encode", folder_ / "shapes", "-o", folder_ / "tokens"},
        {"images", "eval", folder_ / "shapes"}}) {
    auto these = command;
    these.insert(these.end(), {"--from", vqgan(), "--threads", "1"});
    const Said said = melete(these);
    EXPECT_EQ(said.code, 0) << said.errors;
    EXPECT_THAT(said.errors, HasSubstr("cut.jpg: damaged"));
    EXPECT_THAT(said.errors, HasSubstr("1 of the pictures are damaged"));
  }
  EXPECT_EQ(read_token_items(folder_ / "tokens").size(), 4u);
}

// A T5 that nobody trained.
void write_t5(const std::string& path) {
  torch::manual_seed(4);
  T5Config config;
  config.vocabulary = 220;
  config.dim = kTextDim;
  config.head_dim = 4;
  config.heads = 2;
  config.layers = 1;
  config.feed_forward_dim = 20;
  config.max_tokens = 12;
  const auto pieces = std::make_shared<SentencePieceTokenizer>(std::string(MELETE_SOURCE_DIR) +
                                                               "/tests/base/sentencepiece/spiece.model");
  save_frozen(path, frozen(T5TextEncoder(T5Encoder(config), pieces)));
}

// A state_dict as torch.save writes it.
void write_state(const std::string& path, const TensorMap& state) {
  Json entries = Json::array();
  for (const auto& [name, tensor] : state) entries.push_back({name, {{"$tensor", name}}});
  std::vector<at::Tensor> keep;
  std::map<std::string, TensorBytes> bytes;
  for (TensorBytes& tensor : tensor_bytes(state, keep)) bytes.emplace(tensor.name, std::move(tensor));
  write_torch_file(path, {{"$ordered", entries}}, bytes);
}

// Theirs: a MaskGit that reads T5, with its autoencoder; for super-resolution with another one, which has
// kept its discriminator.
struct Theirs {
  TensorMap state;
  muse::VqganVae vae{nullptr};
  muse::Vqgan smaller{nullptr};
};
Theirs theirs(uint64_t seed, int64_t positions, bool super_resolution) {
  torch::manual_seed(seed);
  Theirs made;
  const Json vae = {{"dim", 16}, {"layers", 2}, {"codebook_size", kCodes}, {"discr_layers", 1}};
  made.vae = muse::Vqgan(foreign::vqgan_config(vae))->vae;
  const Json transformer = {{"num_tokens", kCodes}, {"dim", 16},  {"seq_len", positions},
                            {"depth", 1},           {"heads", 2}, {"dim_head", 8}};
  muse::MaskGit maskgit(
      foreign::maskgit_config({{"self_token_critic", true}}, transformer, nullptr, kTextDim));
  if (super_resolution) made.smaller = muse::Vqgan(foreign::vqgan_config(vae));
  made.state = foreign::maskgit_state_dict(*maskgit, made.vae,
                                           super_resolution ? made.smaller->vae : muse::VqganVae(nullptr));
  if (super_resolution)
    for (const auto& [name, tensor] : foreign::vqgan_state_dict(*made.smaller))
      made.state["cond_vae." + name] = tensor;
  return made;
}

// Both of upstream's stages, imported, make pictures; what is missing is asked for by the name of its flag.
TEST_F(MuseCommands, ImportedModelsOfBothSizesMakePictures) {
  write_t5(folder_ / "t5.safetensors");
  const auto import = [&](const std::string& name, std::vector<std::string> arguments,
                          const std::string& out) {
    std::vector<std::string> these = {"import", "muse-maskgit-pytorch", folder_ / name, "-o", folder_ / out};
    for (const std::string& argument : arguments) these.insert(these.end(), {"--arguments", argument});
    const Said said = melete(these);
    ASSERT_EQ(said.code, 0) << said.errors;
  };
  const int64_t small_tokens = kSmall * kSmall / 16, large_tokens = kLarge * kLarge / 16;
  const Theirs first = theirs(1, small_tokens, false), second = theirs(2, large_tokens, true);
  write_state(folder_ / "base.pt", first.state);
  write_state(folder_ / "large.pt", second.state);
  import("base.pt", {}, "their_base.safetensors");
  import("base.pt", {"take=vae"}, "base_vae.safetensors");
  import("large.pt", {fmt::format("cond_image_size={}", kSmall)}, "their_large.safetensors");
  import("large.pt", {"take=vae"}, "large_vae.safetensors");
  import("large.pt", {"take=cond_vae"}, "smaller_vae.safetensors");

  std::vector<std::string> these = {"generate",
                                    "muse",
                                    "--from",
                                    folder_ / "their_base.safetensors",
                                    "--text",
                                    "a slow bell",
                                    "--steps",
                                    "2",
                                    "--threads",
                                    "1",
                                    "--critic",
                                    "-o",
                                    folder_ / "theirs.png"};
  const std::vector<std::pair<std::string, std::string>> needed = {
      {"--vqgan", "base_vae.safetensors"},
      {"--text_encoder", "t5.safetensors"},
      {"--large", "their_large.safetensors"},
      {"--large_vqgan", "large_vae.safetensors"},
      {"--large_smaller_vqgan", "smaller_vae.safetensors"},
      {"--large_text_encoder", "t5.safetensors"}};
  for (const auto& [flag, file] : needed) {
    const Said said = melete(these);
    if (flag != "--large") {
      EXPECT_EQ(said.code, 1);
      EXPECT_THAT(said.errors, HasSubstr("give " + flag + "\n"));
    }
    these.insert(these.end(), {flag, folder_ / file});
  }
  const Said said = melete(these);
  ASSERT_EQ(said.code, 0) << said.errors;
  EXPECT_EQ(read_png(folder_ / "theirs.png").width, kLarge);

  // What was loaded is what they have.
  muse::MaskGitPaths paths;
  paths.run = folder_ / "their_large.safetensors";
  paths.vqgan = folder_ / "large_vae.safetensors";
  paths.smaller_vqgan = folder_ / "smaller_vae.safetensors";
  paths.text_encoder = folder_ / "t5.safetensors";
  muse::LoadedMaskGit loaded = muse::load_maskgit_run(paths);
  EXPECT_EQ(loaded.smaller_height, kSmall);
  const TensorMap back =
      foreign::maskgit_state_dict(*loaded.model->maskgit, loaded.pictures->vae(), loaded.smaller->vae());
  for (const auto& [name, tensor] : second.state) {
    if (name.starts_with("cond_vae.discr.")) continue;
    ASSERT_TRUE(back.count(name)) << name;
    EXPECT_TRUE(at::equal(back.at(name), tensor)) << name;
  }
  // The file comes out as it went in.
  export_checkpoint(paths.run, folder_ / "again.pt", {ExportFor::training});
  EXPECT_EQ(content(folder_ / "large.pt"), content(folder_ / "again.pt"));
}

// Ours, which reads T5, as upstream's MaskGit.load takes it.
TEST_F(MuseCommands, OursGoesOutWithItsAutoencoders) {
  write_t5(folder_ / "t5.safetensors");
  Json theirs = small_vqgan();  // of a size that upstream's can have
  theirs["model"]["vae"]["dim"] = 16;
  theirs["model"]["vae"]["groups"] = 16;
  const std::string autoencoder = folder_ / "autoencoder.safetensors";
  save_checkpoint(autoencoder, untrained_checkpoint(kVqganTask, theirs));
  Json settings = small_maskgit(autoencoder, kLarge);
  settings["model"]["text"] = {{"tokenizer", "none"}};
  settings["text_from"] = folder_ / "t5.safetensors";
  settings["smaller_height"] = kSmall;
  settings["model"]["critic"] = "separate";
  settings["model"]["critic_transformer"] = settings["model"]["transformer"];
  save_checkpoint(folder_ / "ours.safetensors", untrained_checkpoint(kMaskGitTask, settings));
  export_checkpoint(folder_ / "ours.safetensors", folder_ / "ours.pt", {ExportFor::finetune});
  const TensorMap state = read_torch_tensors(folder_ / "ours.pt");
  for (const char* name : {"vae.enc_dec.encoders.0.weight", "cond_vae.enc_dec.encoders.0.weight",
                           "transformer.token_emb.weight", "token_critic.to_logits.weight"})
    EXPECT_TRUE(state.count(name)) << name;
  const ImportedCheckpoint again =
      import_foreign("muse-maskgit-pytorch", folder_ / "ours.pt", {{"cond_image_size", kSmall}});
  const Checkpoint ours = load_checkpoint(folder_ / "ours.safetensors");
  for (const auto& [name, tensor] : again.checkpoint.part("model."))
    EXPECT_TRUE(at::equal(tensor, ours.tensors.at("model." + name))) << name;
  EXPECT_THAT(error_of([&] { export_checkpoint(base(), folder_ / "no.pt", {ExportFor::finetune}); }),
              HasSubstr("trained along"));
  EXPECT_THAT(error_of([&] {
                export_checkpoint(folder_ / "ours.safetensors", folder_ / "no.pt", {ExportFor::training});
              }),
              HasSubstr("no trainer for MaskGit"));
}

}  // namespace muse_command_test
}  // namespace melete
