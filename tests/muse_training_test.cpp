// Pictures as a dataset, and a training step of each of Muse's recipes.
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/temporary_folder.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "data/base/picture_list.h"
#include "data/picture_dataset.h"
#include "dist/group.h"
#include "nn/draws.h"
#include "systems/muse/system.h"
#include "systems/muse/task_maskgit.h"
#include "systems/muse/task_vqgan.h"

namespace melete {

namespace muse_training_test {

namespace fs = std::filesystem;

class PictureFolder {
 public:
  PictureFolder() : path_(fs::temp_directory_path() / fmt::format("melete-pictures-{}", getpid())) {
    fs::remove_all(path_);
    fs::create_directories(path_ / "red_cars");
    picture("red_cars/a.png", 40, 20);
    picture("red_cars/b.png", 20, 30);
    picture("c.png", 16, 16);
    write("c.txt", "a grey\nsquare \n");
  }
  ~PictureFolder() { fs::remove_all(path_); }

  void picture(const std::string& name, int width, int height) {
    Image image(width, height);
    for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(i * 7 % 251);
    write_png((path_ / name).string(), image);
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(path_ / name) << text; }
  std::string path(const std::string& name = "") const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

PicturesConfig small_pictures() {
  PicturesConfig config;
  config.prepare.height = 16;
  config.prepare.crop = "random";
  return config;
}

// One step of every phase by hand: every parameter of the phase gets a finite gradient, and some a gradient
// at all.
void train_one_step(Task& task, const Batch& batch) {
  task.model().train();
  SeededDraws draws(1);
  StepContext context;
  context.draws = &draws;
  for (const Phase& phase : task.phases()) {
    for (const at::Tensor& weight : task.model().parameters()) weight.set_requires_grad(false);
    for (const ParameterGroup& group : phase.groups)
      for (const auto& [name, weight] : group.parameters) weight.set_requires_grad(true);
    const Losses losses = phase.loss(batch, context);
    ASSERT_TRUE(std::isfinite(losses.total.item<double>())) << phase.name;
    for (const auto& [name, value] : losses.named) EXPECT_FALSE(value.requires_grad()) << name;
    losses.total.backward();
    double norm = 0;
    for (const ParameterGroup& group : phase.groups)
      for (const auto& [name, weight] : group.parameters) {
        if (!weight.grad().defined()) continue;
        ASSERT_TRUE(weight.grad().isfinite().all().item<bool>()) << name;
        norm += weight.grad().norm().item<double>();
      }
    EXPECT_GT(norm, 0) << phase.name;
  }
}

std::map<std::string, double> validated(Task& task, const Batch& batch) {
  const at::NoGradGuard no_grad;
  task.model().eval();
  SeededDraws draws(2);
  StepContext context;
  context.training = false;
  context.draws = &draws;
  std::map<std::string, double> values;
  for (const auto& [name, value] : task.validate(batch, context).named) values[name] = value.item<double>();
  return values;
}

TEST(Pictures, ComeFromAFolderWithTheirCaptions) {
  const PictureFolder folder;
  const auto entries = load_pictures(folder.path(), Captions::automatic);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].text, "a grey square");  // c.png stands before red_cars/
  EXPECT_EQ(entries[1].text, "red cars");
  EXPECT_EQ(entries[2].path, folder.path("red_cars/b.png"));
  EXPECT_EQ(load_pictures(folder.path(), Captions::beside)[1].text, "");
  EXPECT_EQ(load_pictures(folder.path(), Captions::folder)[0].text, "");
  EXPECT_THROW(load_pictures(folder.path("nowhere"), Captions::automatic), Error);
}

TEST(Pictures, ComeFromAList) {
  PictureFolder folder;
  folder.write("list.jsonl",
               "{\"path\": \"c.png\", \"label\": \"grey\"}\n\n{\"path\": \"red_cars/a.png\"}\n");
  const auto entries = load_pictures(folder.path("list.jsonl"), Captions::automatic, "label");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].path, folder.path("c.png"));
  EXPECT_EQ(entries[0].text, "grey");
  EXPECT_EQ(entries[1].text, "");
  folder.write("bad.jsonl", "{\"path\": 3}\n");
  EXPECT_THROW(load_pictures(folder.path("bad.jsonl"), Captions::automatic), Error);
}

TEST(Pictures, AreAFunctionOfSeedEpochAndIndex) {
  const PictureFolder folder;
  const auto entries = load_pictures(folder.path(), Captions::automatic);
  PictureDataset one(entries, small_pictures()), other(entries, small_pictures());
  bool differs = false;
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    const Item item = one.draw(5, static_cast<uint64_t>(epoch), 1);
    const at::Tensor picture = item.find("picture")->values;
    EXPECT_EQ(picture.sizes(), (std::vector<int64_t>{3, 16, 16}));
    EXPECT_GE(picture.min().item<double>(), 0);
    EXPECT_LE(picture.max().item<double>(), 1);
    EXPECT_EQ(item.words.at("text"), "red cars");
    EXPECT_TRUE(at::equal(picture, other.draw(5, static_cast<uint64_t>(epoch), 1).find("picture")->values));
    differs |= !at::equal(picture, one.draw(5, 100, 1).find("picture")->values);
  }
  EXPECT_TRUE(differs);
}

TEST(Pictures, ThatCannotBeReadAreNamedAndReplaced) {
  PictureFolder folder;
  folder.write("broken.png", "no picture at all");
  PicturesConfig config = small_pictures();
  config.max_failed_share = 0.5;
  std::vector<std::string> named;
  PictureDataset dataset(load_pictures(folder.path(), Captions::automatic), config,
                         [&](const std::string& path, const std::string&) { named.push_back(path); });
  const Item item = dataset.draw(0, 0, 0);
  EXPECT_NE(item.words.at("path"), folder.path("broken.png"));
  dataset.draw(0, 1, 0);
  EXPECT_EQ(named, std::vector<std::string>{folder.path("broken.png")});
  EXPECT_EQ(dataset.failed_files(), 1);
  config.max_failed_share = 0;
  PictureDataset strict(load_pictures(folder.path(), Captions::automatic), config);
  EXPECT_THROW(strict.draw(0, 0, 0), Error);
}

TEST(Pictures, ThatEndTooEarlyAreNamedAndCounted) {
  PictureFolder folder;
  folder.picture("cut.png", 60, 60);
  const std::string whole = testing::read_bytes(folder.path("cut.png"));
  folder.write("cut.png", whole.substr(0, whole.size() * 2 / 3));
  std::vector<std::string> told;
  PictureDataset dataset(
      load_pictures(folder.path(), Captions::automatic), small_pictures(),
      [&](const std::string& path, const std::string& what) { told.push_back(path + ": " + what); });
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t i = 0; i < dataset.size(); ++i) dataset.draw(0, static_cast<uint64_t>(epoch), i);
  EXPECT_EQ(told, std::vector<std::string>{folder.path("cut.png") +
                                           ": damaged, and used as far as it goes (1 so far, of 4)"});
}

// torchvision's weights in a file become the perceptual loss; without them the run says that there is none.
TEST(VqganTraining, VggComesFromAFileOrIsMissed) {
  const testing::TemporaryFolder folder;
  torch::manual_seed(0);
  TensorMap vgg;
  const auto layer = [&](const std::string& name, const std::vector<int64_t>& shape) {
    vgg[name + ".weight"] = at::randn(shape) * 0.2;
    vgg[name + ".bias"] = at::randn({shape.front()});
  };
  layer("features.0", {4, 3, 3, 3});
  layer("features.3", {8, 4, 3, 3});
  layer("classifier.0", {12, 8 * 7 * 7});
  layer("classifier.3", {10, 12});
  std::vector<at::Tensor> keep;
  write_safetensors(folder / "vgg.safetensors", tensor_bytes(vgg, keep), {});
  for (const bool given : {true, false}) {
    const PictureFolder pictures;
    auto recipe = make_vqgan_recipe();
    recipe->data_from = pictures.path();
    Schema settings = recipe->schema();
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"data.height", "16"},
                                            {"data.valid_fraction", "0"},
                                            {"batch_size", "2"},
                                            {"model.vae.dim", "8"},
                                            {"model.vae.layers", "2"},
                                            {"model.vae.groups", "4"},
                                            {"model.vae.quantizer.codebook_size", "64"},
                                            {"model.loss.adversarial", "none"},
                                            {"vgg_from", given ? folder / "vgg.safetensors" : ""}})
      settings.set(name, value);
    recipe->settle();
    Group alone;
    Reporter silent;
    const Feed feed = recipe->open({3, alone, silent});
    EXPECT_EQ(::testing::PrintToString(feed.description).find("there is no VGG") != std::string::npos,
              !given);
    auto task = recipe->make_task();
    const auto values = validated(*task, recipe->example(2));
    EXPECT_EQ(values.count("perceptual") > 0 && values.at("perceptual") > 0, given);
  }
}

TEST(VqganTraining, TakesAStepOfBothPhases) {
  torch::manual_seed(0);
  for (const char* own : {"true", "false"}) {
    auto recipe = make_vqgan_recipe();
    Schema settings = recipe->schema();
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"data.height", "16"},
                                            {"model.vae.dim", "8"},
                                            {"model.vae.layers", "2"},
                                            {"model.vae.groups", "4"},
                                            {"model.vae.quantizer.codebook_size", "64"},
                                            {"model.discriminator.layers", "2"},
                                            {"model.discriminator.groups", "4"},
                                            {"own_discriminator_batches", own}})
      settings.set(name, value);
    recipe->settle_on_paper();
    auto task = recipe->make_task();
    const Batch batch = recipe->example(2);
    ASSERT_EQ(task->phases().size(), 2u);
    train_one_step(*task, batch);
    const auto values = validated(*task, batch);
    for (const char* name : {"loss", "reconstruction", "psnr", "ssim", "code_use", "perplexity"})
      EXPECT_TRUE(values.count(name) > 0 && std::isfinite(values.at(name))) << name;
    EXPECT_TRUE(task->averaged("vae.output.weight"));
    EXPECT_FALSE(task->averaged("discriminator.input.weight"));
  }
}

TEST(MaskGitTraining, TakesAStepAndComparesItselfWithChance) {
  torch::manual_seed(0);
  for (const char* critic : {"none", "self", "separate"}) {
    auto recipe = make_maskgit_recipe();
    Schema settings = recipe->schema();
    std::map<std::string, std::string> given = {{"data.height", "32"},       {"model.critic", critic},
                                                {"smaller_height", "16"},    {"model.text.dim", "16"},
                                                {"model.text.depth", "1"},   {"model.text.heads", "2"},
                                                {"model.text.head_dim", "8"}};
    for (const char* part : {"transformer", "critic_transformer"}) {
      const std::string prefix = fmt::format("model.{}.", part);
      given[prefix + "tokens"] = "32";
      given[prefix + "positions"] = "16";
      given[prefix + "dim"] = "32";
      given[prefix + "depth"] = "2";
      given[prefix + "heads"] = "2";
      given[prefix + "head_dim"] = "16";
    }
    for (const auto& [name, value] : given) settings.set(name, value);
    recipe->settle_on_paper();
    auto task = recipe->make_task();
    const Batch batch = recipe->example(3);
    EXPECT_EQ(batch["tokens"].size(1), 16);
    train_one_step(*task, batch);
    const auto values = validated(*task, batch);
    for (const char* name : {"loss", "accuracy", "text_gain"})
      EXPECT_TRUE(values.count(name) > 0 && std::isfinite(values.at(name))) << name;
    const auto chance = task->chance_levels();
    EXPECT_NEAR(chance.at("loss"), std::log(32.0), 1e-9);
    // By share of hidden tokens as well, loss and accuracy, and each beside chance.
    int quarters = 0;
    for (const char* quarter : {"25", "50", "75", "100"}) {
      const std::string loss = fmt::format("loss_{}", quarter),
                        accuracy = fmt::format("accuracy_{}", quarter);
      EXPECT_EQ(values.count(loss), values.count(accuracy));
      EXPECT_EQ(chance.at(loss), chance.at("loss"));
      EXPECT_EQ(chance.at(accuracy), chance.at("accuracy"));
      quarters += static_cast<int>(values.count(loss));
    }
    EXPECT_GT(quarters, 0);
  }
}

// Super-resolution in small: every token of a picture follows from the one of the smaller picture that covers
// it. With the smaller tokens put where they belong this is learned at once; reading them by cross attention
// alone means learning first which place reads which.
constexpr int64_t kKinds = 16, kSide = 4, kSteps = 150;  // side: of the smaller picture, in tokens

// large[row, column] = (small[row / 2, column / 2] + 3 (row % 2) + 5 (column % 2)) modulo kKinds
muse::MaskGitImpl::Batch doubled_tokens(uint64_t seed) {
  const at::Tensor small =
      at::randint(kKinds, {16, kSide, kSide}, at::detail::createCPUGenerator(seed), at::kLong);
  const at::Tensor odd = at::arange(2 * kSide, at::kLong).remainder(2);
  const at::Tensor added = 3 * odd.unsqueeze(1) + 5 * odd;
  const at::Tensor large = (small.repeat_interleave(2, 1).repeat_interleave(2, 2) + added).remainder(kKinds);
  return {large.flatten(1), at::zeros({16, 1, 8}), small.flatten(1)};
}

// Share of hidden tokens that are right after kSteps.
double super_resolution_accuracy(int64_t doublings, int64_t condition_positions) {
  torch::manual_seed(1);
  muse::MaskGitConfig config;
  auto& transformer = config.transformer;
  transformer.tokens = kKinds;
  transformer.positions = 4 * kSide * kSide;
  transformer.dim = 32;
  transformer.depth = 2;
  transformer.heads = 2;
  transformer.head_dim = 16;
  transformer.text_dim = 8;
  transformer.condition_doublings = doublings;
  transformer.condition_columns = kSide;
  transformer.condition_positions = condition_positions;
  config.text_drop = 0;
  muse::MaskGit model(config);
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(3e-3));
  for (uint64_t step = 0; step < kSteps; ++step) {
    SeededDraws draws(step);
    adam.zero_grad();
    model->losses(doubled_tokens(step), draws).total.backward();
    adam.step();
  }
  const at::NoGradGuard no_grad;
  SeededDraws draws(99);
  return model->losses(doubled_tokens(1000000), draws).named.at(1).second.item<double>();
}

TEST(MaskGitTraining, WhatBelongsWhereIsLearnedAtOnce) {
  set_threads(1);
  const double in_place = super_resolution_accuracy(1, 0),
               with_places = super_resolution_accuracy(0, kSide * kSide),
               without = super_resolution_accuracy(0, 0);
  std::printf(
      "hidden tokens that are right: %.2f in place, %.2f with places to read, %.2f without (guessing %.2f)\n",
      in_place, with_places, without, 1.0 / kKinds);
  EXPECT_GT(in_place, 0.9);
  EXPECT_LT(without, 0.5) << "else this shows nothing";
}

}  // namespace muse_training_test
}  // namespace melete
