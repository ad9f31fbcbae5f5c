// Muse's files: muse-maskgit-pytorch's in and out again, and folders of tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <fstream>

#include "base/temporary_folder.h"
#include "core/base/error.h"
#include "data/base/picture_list.h"
#include "data/base/synth_pictures.h"
#include "every_recipe.h"
#include "foreign_files.h"
#include "io/pickled_tensors.h"
#include "systems/foreign.h"
#include "systems/muse/codec_pictures.h"
#include "systems/muse/foreign_files.h"
#include "systems/muse/foreign_names.h"
#include "systems/muse/load.h"
#include "systems/muse/system.h"

namespace melete {
namespace muse_files_test {

using namespace testing;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
namespace foreign = muse_maskgit_pytorch;

const std::string kFiles = std::string(MELETE_SOURCE_DIR) + "/tests/golden/muse/checkpoints/";
const std::string kUpstream = "muse-maskgit-pytorch";

nlohmann::ordered_json about(const std::string& name) {
  std::ifstream file(kFiles + name + ".json");
  return nlohmann::ordered_json::parse(file);
}

TEST(MuseFiles, TrainersPackageComesOutAsItWentIn) {
  TemporaryFolder folder;
  const nlohmann::ordered_json orders = {{"optimizer_parameter_order", kFiles + "trainer_save.json"}};
  for (const bool with_orders : {true, false}) {
    const ImportedCheckpoint imported = import_foreign(kUpstream, kFiles + "trainer_save.pt",
                                                       with_orders ? orders : nlohmann::ordered_json());
    EXPECT_EQ(imported.kind, kVqganTask);
    EXPECT_EQ(imported.complete, with_orders);
    save_checkpoint(folder / "x.safetensors", imported.checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
    EXPECT_EQ(content(kFiles + "trainer_save.pt"), content(folder / "y.pt"));
    if (!with_orders) continue;
    // Every state belongs to a parameter of its shape, and has taken the steps that were made.
    EXPECT_EQ(imported.checkpoint.step(), about("trainer_save").at("optimizer_steps_done").get<int64_t>());
    for (const auto& [key, tensor] : imported.checkpoint.part("optimiser.generator.")) {
      if (!key.ends_with(".first")) continue;
      const std::string name = key.substr(0, key.size() - 6);
      EXPECT_EQ(tensor.sizes(), imported.checkpoint.tensors.at("model." + name).sizes()) << name;
    }
  }
}

TEST(MuseFiles, WeightsAndAverageComeOutAsTheyWentIn) {
  TemporaryFolder folder;
  for (const char* name : {"vae.2", "vae.2.ema"}) {
    const ImportedCheckpoint imported = import_foreign(kUpstream, kFiles + name + ".pt");
    EXPECT_FALSE(imported.complete);
    save_checkpoint(folder / "x.safetensors", imported.checkpoint);
    export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
    EXPECT_EQ(content(kFiles + name + std::string(".pt")), content(folder / "y.pt")) << name;
  }
  // The averaged weights are what the average's file says, as upstream names them.
  export_checkpoint(folder / "x.safetensors", folder / "average.pt", {ExportFor::finetune});
  const TensorMap wanted = foreign::part_of(read_torch_tensors(kFiles + "vae.2.ema.pt"), "ema_model.");
  const TensorMap got = read_torch_tensors(folder / "average.pt");
  EXPECT_EQ(got.size(), wanted.size());
  for (const auto& [name, tensor] : got) EXPECT_TRUE(at::equal(tensor, wanted.at(name))) << name;
  const auto tokenizer = muse::open_picture_tokenizer(folder / "x.safetensors");
  EXPECT_EQ(tokenizer->tokens(at::rand({1, 3, 16, 16})).size(1), 64);
}

// A run of ours as the package of upstream's trainer, with the average; and back, whole.
TEST(MuseFiles, OurRunIsAPackageOfTheirTrainer) {
  TemporaryFolder folder;
  Prepared made = prepare("vqgan", 2, [](Schema& settings) {
    for (const auto& [name, value] :
         std::vector<std::pair<const char*, const char*>>{{"model.vae.dim", "16"},
                                                          {"model.vae.groups", "16"},
                                                          {"model.loss.adversarial", "hinge"},
                                                          {"model.discriminator.layers", "2"},
                                                          {"model.vae.quantizer.kind", "lfq"},
                                                          {"model.vae.quantizer.codebook_size", "64"},
                                                          {"train.ema.update_after_step", "0"},
                                                          {"train.ema.update_every", "1"}})
      settings.set(name, value);
  });
  Trainer trainer({*made.task, *made.batches}, made.config);
  constexpr int kSteps = 4;  // the first two of an average are the weights themselves
  for (int step = 0; step < kSteps; ++step) ASSERT_FALSE(trainer.step().skipped);
  Checkpoint ours = trainer.checkpoint();
  ours.meta["config"] = made.recipe->schema().json();
  save_checkpoint(folder / "ours.safetensors", ours);
  export_checkpoint(folder / "ours.safetensors", folder / "package.pt", {ExportFor::training});

  const ImportedCheckpoint back = import_foreign(kUpstream, folder / "package.pt");
  EXPECT_TRUE(back.complete) << "the package says whose the states are";
  EXPECT_EQ(back.checkpoint.step(), kSteps);
  int states = 0, averages = 0;
  bool moved = false;
  for (const auto& [name, tensor] : ours.tensors) {
    const bool state = name.starts_with("optimiser."), average = name.starts_with("ema.average.");
    if (!state && !average && !name.starts_with("model.")) continue;
    const auto found = back.checkpoint.tensors.find(name);
    ASSERT_NE(found, back.checkpoint.tensors.end()) << name;
    EXPECT_TRUE(at::equal(found->second.to(tensor.scalar_type()), tensor)) << name;
    states += state;
    averages += average;
    if (average) moved |= !at::equal(tensor, ours.tensors.at("model." + name.substr(12)));
  }
  EXPECT_GT(states, 40);
  EXPECT_GT(averages, 10);
  EXPECT_TRUE(moved) << "the average is the model: nothing was told apart";
  EXPECT_EQ(back.checkpoint.tensors.at("ema.step").item<int64_t>(), kSteps);
  // What a Python trainer looks for.
  const Json package = content(folder / "package.pt");
  for (const char* part : {"model", "optim", "discr_optim"}) EXPECT_TRUE(package.contains(part)) << part;
  const auto& groups = package.at("optim").at("param_groups");
  EXPECT_EQ(groups.at(0).at("params").size(), package.at("optimizer_parameter_order").at("optim").size());

  // Without a discriminator there is no such trainer.
  Prepared alone = prepare("vqgan", 2);
  Checkpoint plain = Trainer({*alone.task, *alone.batches}, alone.config).checkpoint();
  plain.meta["config"] = alone.recipe->schema().json();
  save_checkpoint(folder / "plain.safetensors", plain);
  EXPECT_THAT(error_of([&] {
                export_checkpoint(folder / "plain.safetensors", folder / "no.pt", {ExportFor::training});
              }),
              HasSubstr("without a discriminator"));
}

TEST(MuseFiles, GivenArgumentsMustNotContradictTheWeights) {
  EXPECT_THAT(error_of([] {
                import_foreign(kUpstream, kFiles + "vae.2.pt", {{"dim", 32}});
              }),
              HasSubstr("dim = 32 is given, the weights say 16"));
  EXPECT_NE(error_of([] { import_foreign(kUpstream, kFiles + "vae.2.pt", {{"colour", "red"}}); }), "");
  EXPECT_NE(error_of([] {
              import_foreign(kUpstream, kFiles + "trainer_save.pt",
                             {{"optimizer_parameter_order", "nowhere.json"}});
            }),
            "");
}

// What a configuration makes, its weights tell.
TEST(MuseFiles, ArgumentsComeFromShapes) {
  const std::vector<nlohmann::ordered_json> all = {
      {{"dim", 32}, {"layers", 3}, {"codebook_size", 64}, {"discr_layers", 2}},
      {{"dim", 16},
       {"layers", 2},
       {"codebook_size", 16},
       {"encdec_num_resnet_blocks", {1, 2}},
       {"channels", 1}},
      {{"dim", 16},
       {"layers", 2},
       {"codebook_size", 16},
       {"use_vgg_and_gan", false},
       {"encdec_layer_mults", {2, 3}}},
      {{"dim", 16},
       {"layers", 1},
       {"codebook_size", 8},
       {"lfq_kwargs", {{"num_codebooks", 2}, {"diversity_gamma", 4}}}}};
  for (const auto& arguments : all) {
    torch::manual_seed(1);
    muse::Vqgan gan(foreign::vqgan_config(arguments));
    const TensorMap state = foreign::vqgan_state_dict(*gan);
    muse::Vqgan again(foreign::vqgan_config(foreign::vqgan_arguments(state)));
    foreign::load(foreign::vqgan_pairs(*again), state);
    muse::VqganConfig first = gan->config(), second = again->config();
    first.vae.multiples = second.vae.multiples = first.vae.layer_dims();
    first.vae.residual_blocks = first.vae.layer_blocks();
    EXPECT_EQ(schema_of(first).json(), schema_of(second).json());
  }
}

muse::VqganVae small_vae(int64_t codebooks) {
  torch::manual_seed(3);
  muse::VqganVaeConfig config;
  config.dim = 16;
  config.layers = 2;
  config.quantizer.codebook_size = 64;
  config.quantizer.codebooks = codebooks;
  return muse::VqganVae(config);
}

TEST(PictureTokens, FolderOfThemIsGoneOnWithAndDecoded) {
  TemporaryFolder folder;
  synth_pictures({folder / "shapes", 20, 1, 24});
  write_bytes(folder / "shapes/broken.png", "no picture");
  const auto pictures = load_pictures(folder / "shapes", Captions::automatic);
  for (const int64_t codebooks : {1, 2}) {
    muse::PictureEncoding how;
    how.tokenizer = std::make_shared<muse::PictureTokenizer>(small_vae(codebooks));
    how.prepare.height = 16;
    how.prepare.width = 24;
    how.smaller = how.tokenizer;
    how.smaller_height = 8;
    const std::string out = folder / fmt::format("tokens_{}", codebooks);
    int problems = 0;
    const auto done =
        muse::encode_pictures(how, pictures, out, {}, [&](const auto&, const auto&) { ++problems; });
    EXPECT_EQ(done.pictures, 20);
    EXPECT_EQ(done.left_out, 1);
    EXPECT_EQ(problems, 1);
    EXPECT_EQ(muse::encode_pictures(how, pictures, out).pictures, 0) << "all there already";
    const auto items = read_token_items(out);
    ASSERT_EQ(items.size(), 20u);
    EXPECT_EQ(items[0].find("tokens")->values.numel(), 4 * 6 * codebooks);
    EXPECT_EQ(items[0].find("condition")->values.numel(), 2 * 3 * codebooks);
    EXPECT_EQ(items[0].words.at("text"), synth_picture(1, 0, 24).caption);

    EXPECT_EQ(muse::decode_pictures(*how.tokenizer, out, folder / "decoded"), 20);
    const Image image = read_png(folder / "decoded/picture_000007.png");
    EXPECT_EQ(image.width, 24);
    EXPECT_EQ(image.height, 16);
    const at::Tensor tokens = items[7].find("tokens")->values.to(at::kLong).unsqueeze(0);
    EXPECT_LT((picture_tensor(image) - how.tokenizer->pictures(tokens, 16, 24)[0].clamp(0, 1))
                  .abs()
                  .max()
                  .item<double>(),
              0.51 / 255);
    if (codebooks > 1) continue;
    torch::manual_seed(4);
    const muse::PictureTokenizer other(muse::VqganVae(small_vae(1)->config()));
    EXPECT_THAT(error_of([&] { muse::decode_pictures(other, out, folder / "wrong"); }),
                HasSubstr("encoded with another model"));
    how.prepare.width = 26;
    EXPECT_THROW(muse::encode_pictures(how, pictures, folder / "uneven"), Error);
  }
}

TEST(PictureTokens, AreMeasuredBesideJpegAndWebp) {
  TemporaryFolder folder;
  synth_pictures({folder / "shapes", 3, 1, 32});
  muse::PictureEncoding how;
  how.tokenizer = std::make_shared<muse::PictureTokenizer>(small_vae(1));
  how.prepare.height = 32;
  const auto eval = muse::eval_pictures(how, load_pictures(folder / "shapes", Captions::automatic), {}, 2);
  ASSERT_EQ(eval.rates.size(), 5u);
  EXPECT_NEAR(eval.rates[0].bits_per_pixel, 6.0 / 16, 1e-9) << "64 codes for 4 x 4 pixels";
  EXPECT_GT(eval.rates[1].bits_per_pixel, eval.rates[0].bits_per_pixel) << "a JPEG of 32 x 32 has its header";
  for (const auto& rate : eval.rates) EXPECT_TRUE(std::isfinite(rate.psnr + rate.ssim)) << rate.name;
  EXPECT_EQ(eval.shown.size(), 2u * 6u);
  EXPECT_GT(eval.perplexity, 0.99);
}

}  // namespace muse_files_test
}  // namespace melete
