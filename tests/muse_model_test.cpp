// Properties of Muse: what is kept stays, what is computed in a quicker way is the same, names lead back.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "core/base/error.h"
#include "data/pictures.h"
#include "gradient_check.h"
#include "io/pickled_tensors.h"
#include "losses/picture_quality.h"
#include "nn/lookup_free.h"
#include "systems/muse/foreign_names.h"
#include "systems/muse/muse.h"
#include "systems/muse/picture_layers.h"
#include "systems/muse/task_vqgan.h"

namespace melete::muse {
namespace muse_model_test {

namespace foreign = muse_maskgit_pytorch;

VqganConfig small_vqgan(const std::string& kind = "lfq", int64_t codebooks = 1) {
  VqganConfig config;
  config.vae.dim = 16;
  config.vae.layers = 2;
  config.vae.residual_blocks = {1, 1};
  config.vae.groups = 8;
  config.vae.quantizer.kind = kind;
  config.vae.quantizer.codebook_size = 16;
  config.vae.quantizer.codebook_dim = 6;
  config.vae.quantizer.codebooks = codebooks;
  config.vae.quantizer.kmeans_init = false;
  config.discriminator.layers = 2;
  config.discriminator.groups = 8;
  return config;
}

MaskGitConfig small_maskgit(const std::string& critic = "none") {
  MaskGitConfig config;
  config.transformer.tokens = 16;
  config.transformer.positions = 24;
  config.transformer.dim = 24;
  config.transformer.depth = 2;
  config.transformer.heads = 2;
  config.transformer.head_dim = 8;
  config.transformer.text_dim = 10;
  config.critic = critic;
  const auto of_critic = config.critic_transformer;
  config.critic_transformer = config.transformer;
  config.critic_transformer.outputs = of_critic.outputs;
  config.critic_transformer.mask_token = of_critic.mask_token;
  return config;
}

at::Tensor pictures(at::IntArrayRef shape, uint64_t seed) {
  return at::rand(shape, at::detail::createCPUGenerator(seed));
}

at::Tensor tokens(at::IntArrayRef shape, uint64_t seed, int64_t count = 16) {
  return at::randint(0, count, shape, at::detail::createCPUGenerator(seed), at::kLong);
}

// A small vgg that nobody trained.
Vgg16 small_vgg() {
  Vgg16Config config;
  config.blocks = {{4}, {8, 8}};
  config.hidden = config.features = 12;
  Vgg16 vgg(config);
  for (const at::Tensor& weight : vgg->parameters()) weight.set_requires_grad(false);
  return vgg;
}

// By default VGG sees pixels as it was trained on them: less ImageNet's mean, over its spread.
TEST(Vgg, SeesNormalisedPixelsUnlessAsUpstream) {
  torch::manual_seed(2);
  const at::NoGradGuard no_grad;
  Vgg16 vgg = small_vgg();
  const at::Tensor x = pictures({2, 3, 16, 16}, 3);
  const at::Tensor mean = at::tensor({0.485, 0.456, 0.406}, at::kFloat).view({1, 3, 1, 1}),
                   spread = at::tensor({0.229, 0.224, 0.225}, at::kFloat).view({1, 3, 1, 1});
  const at::Tensor wanted = vgg->forward_raw((x - mean) / spread, nullptr);
  ASSERT_FALSE(VqganConfig().as_upstream);
  expect_close(perception_of(vgg, VqganConfig().as_upstream)(x, nullptr), wanted, 1e-5);
  expect_close(perception_of(vgg, true)(x, nullptr), vgg->forward_raw(x, nullptr), 1e-5);
  EXPECT_GT((wanted - vgg->forward_raw(x, nullptr)).abs().max().item<double>(), 1e-4);
}

TEST(PictureLayers, DoublingIsTheTransposedConvolution) {
  torch::manual_seed(1);
  Doubling layer(5, 3);
  const at::Tensor x = noise({2, 5, 6, 4}, 1).requires_grad_();
  const at::Tensor expected = at::conv_transpose2d(x, layer->weight, layer->bias, 2, 1);
  expect_close(layer->forward(channels_last(x)), expected, 1e-5);
  const at::Tensor pull = noise(expected.sizes(), 2);
  const auto mine = torch::autograd::grad({layer->forward(x)}, {x, layer->weight, layer->bias}, {pull});
  const auto theirs = torch::autograd::grad({expected}, {x, layer->weight, layer->bias}, {pull});
  for (size_t i = 0; i < mine.size(); ++i) expect_close(mine[i], theirs[i], 1e-5);
}

TEST(LookupFree, FactorisedEntropyIsTheDenseOne) {
  for (const int64_t bits : {1, 2, 5, 8})
    for (const int64_t books : {1, 3}) {
      const double sharpness = 3, scale = 0.5;
      const at::Tensor x = noise({20, books, bits}, 3).mul_(0.3).requires_grad_();
      const at::Tensor place = at::pow(2, at::arange(bits - 1, -1, -1, at::kLong));
      const at::Tensor codebook =
          at::arange(int64_t{1} << bits, at::kLong).unsqueeze(1).bitwise_and(place).ne(0).to(at::kFloat) * 2 *
              scale -
          scale;
      const auto fast = factorised_entropy(x, sharpness, scale), slow = dense_entropy(x, codebook, sharpness);
      const std::string what = fmt::format("{} bits, {} books", bits, books);
      expect_close(fast.of_frames, slow.of_frames, 1e-4, what);
      expect_close(fast.of_use, slow.of_use, 1e-4, what);
      const auto loss = [](const LookupFreeEntropy& e) { return e.of_frames - 4 * e.of_use; };
      expect_close(torch::autograd::grad({loss(fast)}, {x})[0], torch::autograd::grad({loss(slow)}, {x})[0],
                   1e-3, what);
    }
  // Without a table of all codes, 2^16 of them are no more work than a product of two tables of 2^8.
  const auto large = factorised_entropy(noise({64, 1, 16}, 4), 100, 1);
  EXPECT_TRUE(at::isfinite(large.of_use).item<bool>());
  EXPECT_NEAR(large.of_use.item<double>(), std::log(64), 0.3) << "64 confident frames take 64 codes";
}

TEST(Vqgan, RectanglesGreyAndSeveralCodebooks) {
  for (const std::string kind : {"lfq", "vq"})
    for (const int64_t codebooks : {1, 2})
      for (const int64_t channels : {1, 3}) {
        torch::manual_seed(2);
        VqganConfig config = small_vqgan(kind, codebooks);
        config.vae.channels = channels;
        VqganVae vae(config.vae);
        vae->eval();
        const at::Tensor real = pictures({2, channels, 16, 24}, 1);
        const auto result = vae->forward(real);
        ASSERT_EQ(result.pictures.sizes(), real.sizes());
        EXPECT_EQ(result.ids.size(1), 4);
        EXPECT_EQ(result.ids.size(2), 6);
        EXPECT_EQ(result.ids.dim(), codebooks == 1 ? 3 : 4);
        EXPECT_TRUE(at::equal(vae->tokenize(real), result.ids));
        expect_close(vae->decode_ids(result.ids), result.pictures, 1e-4, kind);
      }
  VqganVae vae(small_vqgan().vae);
  EXPECT_THROW(vae->encode(pictures({1, 3, 18, 16}, 1)), Error);
  EXPECT_THROW(vae->encode(pictures({1, 1, 16, 16}, 1)), Error);
}

// The generator's gradient through a detached reconstruction is that of the whole graph.
TEST(Vqgan, DetachedJudgementGivesTheSameGradients) {
  for (const bool with_vgg : {true, false}) {
    torch::manual_seed(3);
    VqganConfig config = small_vqgan();
    config.loss.perceptual_weight = 0.7;
    config.loss.adversarial_weight = 0.4;
    Vqgan gan(config);
    const Perception perceive = with_vgg ? perception_of(small_vgg(), false) : Perception();
    const at::Tensor real = pictures({2, 3, 32, 16}, 4);
    std::vector<std::vector<at::Tensor>> gradients;
    std::vector<double> totals;
    for (const bool whole : {true, false}) {
      for (const at::Tensor& weight : gan->discriminator->parameters()) weight.set_requires_grad(whole);
      SeededDraws draws(5);
      const auto losses = gan->generator_losses(real, perceive, &draws);
      totals.push_back(losses.total.item<double>());
      gradients.push_back(torch::autograd::grad({losses.total}, gan->vae->parameters(), {}, {}, false, true));
    }
    EXPECT_NEAR(totals[0], totals[1], 1e-5 * std::abs(totals[0]));
    for (size_t i = 0; i < gradients[0].size(); ++i)
      if (gradients[0][i].defined()) expect_close(gradients[1][i], gradients[0][i], 1e-3);
  }
}

// What the generator's phase has judged gives the discriminator the gradients of a pass of its own.
TEST(Vqgan, SharedContestGivesTheSameDiscriminatorLoss) {
  torch::manual_seed(6);
  Vqgan gan(small_vqgan());
  const auto weights = gan->discriminator->parameters();
  for (const at::Tensor& weight : weights) weight.set_requires_grad(false);
  SeededDraws draws(7);
  VqganImpl::Contest contest;
  gan->generator_losses(pictures({2, 3, 16, 16}, 8), perception_of(small_vgg(), false), &draws, &contest);
  for (const at::Tensor& weight : weights) {
    EXPECT_FALSE(weight.requires_grad()) << "the generator's phase leaves the weights as it found them";
    weight.set_requires_grad(true);
  }
  ASSERT_TRUE(contest.fake_logits.defined());
  for (const bool penalty : {false, true}) {
    VqganImpl::Contest anew = contest;
    anew.fake_logits = at::Tensor();
    const auto shared = gan->discriminator_losses(contest, penalty),
               own = gan->discriminator_losses(anew, penalty);
    expect_close(shared.total, own.total, 1e-5);
    const auto a = torch::autograd::grad({shared.total}, weights, {}, true);
    const auto b = torch::autograd::grad({own.total}, weights, {}, true);
    for (size_t i = 0; i < a.size(); ++i) expect_close(a[i], b[i], 1e-4);
    EXPECT_EQ(shared.named.size(), penalty ? 2u : 1u);
  }
}

TEST(Vqgan, WithoutADiscriminatorTheQuantizersLossStays) {
  torch::manual_seed(9);
  VqganConfig config = small_vqgan();
  config.loss.adversarial = "none";
  Vqgan gan(config);
  SeededDraws draws(1);
  const auto losses = gan->generator_losses(pictures({1, 3, 16, 16}, 1), {}, &draws);
  EXPECT_NEAR(losses.total.item<double>(),
              losses.named[0].second.item<double>() + losses.named[1].second.item<double>(), 1e-5);
  EXPECT_THROW(gan->discriminator_losses({}, false), Error);
}

// Names lead to upstream's and back; what a fresh model gives, another one takes.
TEST(MuseNames, StateGoesOutAndComesBack) {
  for (const std::string kind : {"lfq", "vq"}) {
    torch::manual_seed(10);
    Vqgan first(small_vqgan(kind)), second(small_vqgan(kind));
    const TensorMap state = foreign::vqgan_state_dict(*first);
    EXPECT_TRUE(state.count("enc_dec.encoders.0.weight"));
    EXPECT_TRUE(state.count("discr.to_logits.2.bias"));
    foreign::load(foreign::vqgan_pairs(*second), state);
    for (const auto& item : first->named_parameters())
      EXPECT_TRUE(at::equal(item.value(), second->named_parameters()[item.key()])) << item.key();
    TensorMap broken = state;
    broken.erase("enc_dec.encoders.0.weight");
    EXPECT_THROW(foreign::load(foreign::vqgan_pairs(*second), broken), Error);
    broken = state;
    broken["surplus"] = at::zeros({1});
    EXPECT_THROW(foreign::load(foreign::vqgan_pairs(*second), broken), Error);
  }
  for (const std::string critic : {"none", "self", "separate"}) {
    torch::manual_seed(11);
    MaskGit first(small_maskgit(critic)), second(small_maskgit(critic));
    VqganVae vae(small_vqgan().vae), again(small_vqgan().vae);
    const TensorMap state = foreign::maskgit_state_dict(*first, vae, VqganVae(nullptr));
    foreign::load_maskgit(*second, state);
    foreign::load(foreign::vae_pairs(*again), foreign::part_of(state, "cond_vae."));
    for (const auto& item : first->named_parameters())
      EXPECT_TRUE(at::equal(item.value(), second->named_parameters()[item.key()])) << item.key();
  }
}

// Files as upstream's trainer wrote them: the weights alone, the average beside them, the whole package.
TEST(MuseNames, UpstreamsFilesAreRead) {
  const std::string folder = std::string(MELETE_SOURCE_DIR) + "/tests/golden/muse/checkpoints/";
  for (const auto& [name, prefix] :
       {std::pair{"vae.2", ""}, {"vae.2.ema", "ema_model."}, {"trainer_save", "model."}}) {
    std::ifstream about(folder + name + ".json");
    const auto config = nlohmann::ordered_json::parse(about).at("config").at("vae");
    Vqgan gan(foreign::vqgan_config(config));
    const TensorMap state = foreign::part_of(read_torch_tensors(folder + name + ".pt"), prefix);
    foreign::load(foreign::vqgan_pairs(*gan), state);
    const TensorMap back = foreign::vqgan_state_dict(*gan);
    EXPECT_EQ(back.size(), state.size()) << name;
    for (const auto& [key, tensor] : state) {
      ASSERT_TRUE(back.count(key)) << name << " " << key;
      EXPECT_TRUE(at::equal(back.at(key), tensor)) << name << " " << key;
    }
  }
}

TEST(MaskGit, MasksAsManyAsTheScheduleSays) {
  MaskGit model(small_maskgit());
  struct Times : SeededDraws {
    using SeededDraws::SeededDraws;
    at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override {
      return what == "mask_time" ? at::tensor({0.0f, 0.5f, 0.9999f}) : SeededDraws::uniform(what, shape);
    }
  } draws(1);
  const at::Tensor given = tokens({3, 24}, 2);
  const MaskedTokens masked = model->mask(given, draws);
  const at::Tensor counts = masked.hidden.sum(1);
  EXPECT_EQ(counts[0].item<int64_t>(), 24);
  EXPECT_EQ(counts[1].item<int64_t>(), std::lround(24 * std::sqrt(0.5)));
  EXPECT_EQ(counts[2].item<int64_t>(), 1) << "at least one";
  EXPECT_TRUE(at::equal(masked.input.ne(16), masked.hidden.logical_not()));
  EXPECT_TRUE(at::equal(masked.labels >= 0, masked.hidden));
  EXPECT_TRUE(at::equal(at::where(masked.hidden, masked.labels, masked.input), given));

  MaskGitConfig config = small_maskgit();
  config.unmasked_share = 0.25;
  MaskGit shows(config);
  const MaskedTokens shown = shows->mask(given, draws);
  EXPECT_EQ(shown.hidden[0].sum().item<int64_t>(), 18) << "a quarter is shown";
  EXPECT_EQ((shown.labels[0] >= 0).sum().item<int64_t>(), 24) << "and asked for all the same";
}

MaskGitImpl::Batch small_batch(uint64_t seed) {
  at::Tensor text = noise({3, 4, 10}, seed);
  text[1].narrow(0, 2, 2).zero_();
  return {tokens({3, 24}, seed + 1), text, tokens({3, 6}, seed + 2)};
}

// The 2 x 3 tokens of the smaller picture belong into the 4 x 6 of the picture.
void put_in_place(MaskGitTransformerConfig& config) {
  config.condition_doublings = 1;
  config.condition_columns = 3;
}

TEST(MaskGit, EveryPartLearns) {
  for (const std::string critic : {"none", "self", "separate"}) {
    torch::manual_seed(12);
    MaskGitConfig config = small_maskgit(critic);
    config.transformer.self_condition = true;
    config.self_condition_share = 1;
    put_in_place(config.transformer);
    put_in_place(config.critic_transformer);
    MaskGit model(config);
    SeededDraws draws(3);
    const auto losses = model->losses(small_batch(1), draws);
    losses.total.backward();
    EXPECT_EQ(losses.named.size(), critic == "none" ? 2u : 4u);
    EXPECT_NEAR(losses.named[0].second.item<double>(), std::log(16), 1.5) << "guessing at first";
    for (const auto& item : model->named_parameters())
      EXPECT_TRUE(item.value().grad().defined() ||
                  item.key().find("critic.self_condition") != std::string::npos)
          << critic << " " << item.key();
    EXPECT_EQ(losses.by_picture.size(0), 3);
    MaskGitImpl::LossOptions how;
    how.only_prediction = true;
    EXPECT_EQ(model->losses(small_batch(1), draws, how).named.size(), 2u) << "without the critic";
  }
}

// Where the tokens of a smaller picture are is seen with condition_positions, and only then.
TEST(MaskGit, SmallerPicturesHavePlacesWhereTheyAreGivenSome) {
  const at::NoGradGuard no_grad;
  const auto batch = small_batch(4);
  const at::Tensor turned = batch.condition.flip({1});
  ASSERT_FALSE(at::equal(turned, batch.condition));
  for (const int64_t places : {0, 6}) {
    torch::manual_seed(22);
    MaskGitConfig config = small_maskgit();
    config.transformer.condition_positions = places;
    MaskGit model(config);
    const auto embed = [&](const at::Tensor& condition) {
      return model->transformer->embed(batch.tokens, model->transformer->context(batch.text, condition));
    };
    const double difference = (embed(batch.condition) - embed(turned)).abs().max().item<double>();
    EXPECT_EQ(difference > 1e-3, places > 0) << difference;
    if (places == 0) continue;
    EXPECT_THROW(embed(tokens({3, 7}, 1)), Error);
  }
}

// With condition_doublings each of them is added where it belongs, and to its neighbours, before anything is
// attended to.
TEST(MaskGit, SmallerPicturesAreAddedWhereTheyBelong) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(23);
  MaskGitConfig config = small_maskgit();
  put_in_place(config.transformer);
  MaskGit model(config);
  auto& transformer = *model->transformer;
  const auto batch = small_batch(4);
  const auto in_place = [&](const at::Tensor& condition) {
    return transformer.context(batch.text, condition).in_place.reshape({3, 4, 6, 24});
  };
  at::Tensor other = batch.condition.clone();
  other.select(1, 2).add_(1).remainder_(16);  // the last of the upper row: columns 4 and 5
  const at::Tensor changed = (in_place(other) - in_place(batch.condition)).abs().amax({0, 3});  // [4, 6]
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t column = 0; column < 6; ++column)
      EXPECT_EQ(changed[row][column].item<double>() > 1e-4, row < 3 && column > 2) << row << " " << column;
  const auto embed = [&](const at::Tensor& condition) {
    return transformer.embed(batch.tokens, transformer.context(batch.text, condition));
  };
  EXPECT_EQ(embed(batch.condition).size(1), 24);
  EXPECT_THROW(embed(tokens({3, 7}, 1)), Error) << "no whole rows";
  EXPECT_THROW(embed(tokens({3, 3}, 1)), Error) << "fewer places than the picture has";
}

// One token may be left out of the loss; figures by picture add up to those of the batch.
TEST(MaskGit, LossIsOverTheTokensThatCount) {
  torch::manual_seed(21);
  MaskGit model(small_maskgit());
  const at::NoGradGuard no_grad;
  const auto batch = small_batch(3);
  const auto losses_of = [&](int64_t ignored) {
    SeededDraws draws(5);
    MaskGitImpl::LossOptions how;
    how.text_drop = 0;
    how.ignored_token = ignored;
    return model->losses(batch, draws, how);
  };
  const auto all = losses_of(-1);
  EXPECT_NEAR((all.by_picture * all.asked).sum().item<double>() / all.asked.sum().item<double>(),
              all.total.item<double>(), 1e-5);
  EXPECT_NEAR(all.right.sum().item<double>() / all.asked.sum().item<double>(),
              all.named[1].second.item<double>(), 1e-6);
  const at::Tensor labels = all.masked.labels;
  const int64_t token = labels.index({labels >= 0})[0].item<int64_t>();
  const at::Tensor logits = model->transformer->predict(
      model->transformer->embed(all.masked.input, model->transformer->context(batch.text, batch.condition)));
  const at::Tensor wanted = at::cross_entropy_loss(
      logits.flatten(0, 1), at::where(labels < 0, at::full_like(labels, token), labels).flatten(), {},
      at::Reduction::Mean, token);
  EXPECT_NEAR(losses_of(token).total.item<double>(), wanted.item<double>(), 1e-5);
  EXPECT_GT(std::abs(all.total.item<double>() - wanted.item<double>()), 1e-4);
}

// Text that is dropped cannot be told from text that is not there.
TEST(MaskGit, DroppedTextIsNotSeen) {
  torch::manual_seed(13);
  MaskGit model(small_maskgit());
  const auto batch = small_batch(5);
  const auto embed = [&](const at::Tensor& text, bool dropped) {
    const MaskGitContext context = model->transformer->context(text, batch.condition);
    return model->transformer->embed(batch.tokens, dropped ? context.without_text() : context);
  };
  expect_close(embed(batch.text, true), embed(noise({3, 7, 10}, 9), true), 1e-5);
  expect_close(embed(batch.text, true), embed(at::zeros({3, 4, 10}), false), 1e-5);
  EXPECT_GT((embed(batch.text, false) - embed(batch.text, true)).abs().max().item<double>(), 1e-3);
}

// One batch with and without the text is two passes.
TEST(GuidedMaskGit, OneBatchIsTwoPasses) {
  for (const bool negative : {false, true}) {
    torch::manual_seed(14);
    MaskGitConfig config = small_maskgit("separate");
    config.transformer.self_condition = true;
    put_in_place(config.transformer);
    put_in_place(config.critic_transformer);
    MaskGit model(config);
    model->eval();
    const at::NoGradGuard no_grad;
    const auto batch = small_batch(6);
    const at::Tensor other = negative ? noise({3, 6, 10}, 20) : at::Tensor();
    Guidance guidance;
    guidance.scale = 2.5;
    GuidedMaskGit guided(model, batch.text, other, batch.condition, guidance);
    auto& transformer = *model->transformer;
    const MaskGitContext with = transformer.context(batch.text, batch.condition);
    const MaskGitContext without =
        negative ? transformer.context(other, batch.condition) : with.without_text();
    at::Tensor before;
    for (int step = 0; step < 3; ++step) {
      const at::Tensor given = tokens({3, 24}, 30 + static_cast<uint64_t>(step), 17);
      const at::Tensor yes = transformer.embed(given, with, before),
                       no = transformer.embed(given, without, before);
      const at::Tensor a = transformer.predict(yes), b = transformer.predict(no);
      expect_close(guided.logits(given), b + (a - b) * 2.5, 1e-4);
      before = yes;
      const at::Tensor plain = tokens({3, 24}, 40);
      const MaskGitContext read = model->critic->context(batch.text, batch.condition);
      const MaskGitContext unread =
          negative ? model->critic->context(other, batch.condition) : read.without_text();
      const at::Tensor doubt = model->doubt(plain, read), null = model->doubt(plain, unread);
      expect_close(guided.doubts(plain), null + (doubt - null) * 2.5, 1e-4);
    }
  }
}

// Says always the same of every token; knows nothing.
struct ToyModel : MaskedModel {
  explicit ToyModel(bool critic) : critic_(critic) {}
  int64_t mask_token() const override { return 16; }
  at::Tensor logits(const at::Tensor& given) override {
    ++calls;
    masks.push_back(given.eq(16).sum(1));
    return noise({given.size(0), given.size(1), 16}, 50);
  }
  bool has_critic() const override { return critic_; }
  at::Tensor doubts(const at::Tensor& given) override { return noise(given.sizes(), 51); }
  bool critic_;
  int calls = 0;
  std::vector<at::Tensor> masks;
};

TEST(IterativeMasking, KeptTokensStay) {
  for (const bool critic : {false, true})
    for (const bool remask : {false, true}) {
      ToyModel model(critic);
      SeededDraws draws(1);
      IterativeMaskingConfig config;
      config.steps = 7;
      config.remask = remask;
      MaskingStart start;
      start.tokens = tokens({3, 24}, 52);
      start.kept = at::zeros({3, 24}, at::kBool);
      start.kept[0].narrow(0, 3, 10).fill_(true);
      start.kept[2].fill_(true);
      bool stood = true;
      const at::Tensor made = decode_masked(model, start, config, draws, [&](const MaskingStep& step) {
        stood = stood && at::equal(step.input.index({start.kept}), start.tokens.index({start.kept}));
      });
      EXPECT_TRUE(stood);
      EXPECT_TRUE(at::equal(made.index({start.kept}), start.tokens.index({start.kept})));
      EXPECT_TRUE(at::equal(made[2], start.tokens[2])) << "nothing was to be made";
      EXPECT_LT(made.max().item<int64_t>(), 16) << "no mask is left";
      EXPECT_EQ(model.calls, 7);
      EXPECT_EQ(model.masks.front()[0].item<int64_t>(), 14);
      EXPECT_EQ(model.masks.front()[1].item<int64_t>(), 24);
      EXPECT_EQ(model.masks.back()[1].item<int64_t>(), 1) << "the last step makes one token anew";
    }
}

TEST(IterativeMasking, VariationsKeepAShare) {
  for (const double strength : {0.2, 0.6}) {
    ToyModel model(false);
    SeededDraws draws(1);
    IterativeMaskingConfig config;
    MaskingStart start;
    start.tokens = tokens({4, 200}, 53);
    start.time = mask_time("cosine", strength);
    decode_masked(model, start, config, draws);
    EXPECT_NEAR(model.masks.front()[0].item<double>(), 200 * strength, 1);
  }
  for (const std::string& schedule : mask_schedule_names()) {
    EXPECT_NEAR(mask_share(schedule, at::scalar_tensor(0.0)).item<double>(), 1, 1e-6);
    EXPECT_NEAR(mask_share(schedule, at::scalar_tensor(1.0)).item<double>(), 0, 1e-6);
    EXPECT_NEAR(mask_share(schedule, at::scalar_tensor(mask_time(schedule, 0.4))).item<double>(), 0.4, 1e-5);
  }
  EXPECT_THROW(mask_share("spiral", at::scalar_tensor(0.5)), Error);
}

TEST(Muse, InpaintingAndSuperResolution) {
  torch::manual_seed(15);
  PictureStage base;
  base.vae = VqganVae(small_vqgan().vae);
  base.maskgit = MaskGit(small_maskgit());
  base.vae->eval();
  base.maskgit->eval();
  SeededDraws draws(2);
  PictureRequest request;
  request.text = noise({2, 3, 10}, 1);
  request.decoding.steps = 4;
  request.rows = 3;
  request.columns = 5;
  const PictureResult made = make_pictures(base, request, draws);
  EXPECT_EQ(made.pictures.size(2), 12);
  EXPECT_EQ(made.pictures.size(3), 20);

  // Pixels of the right half are to be made anew.
  request.pictures = pictures({2, 3, 16, 24}, 2);
  at::Tensor mask = at::zeros({2, 16, 24}, at::kBool);
  mask.narrow(2, 13, 11).fill_(true);
  request.kept = kept_tokens(mask, base.vae->pixels_per_token());
  EXPECT_EQ(request.kept[0].sum().item<int64_t>(), 4 * 3) << "a patch with one pixel to make is made";
  const PictureResult painted = make_pictures(base, request, draws);
  EXPECT_TRUE(at::equal(painted.ids.index({request.kept}),
                        base.vae->tokenize(request.pictures).index({request.kept})));

  PictureStage larger = base;
  larger.condition_vae = base.vae;
  request = {};
  request.text = noise({2, 3, 10}, 1);
  EXPECT_THROW(make_pictures(larger, request, draws), Error) << "it needs the smaller picture";
  request.smaller = pictures({2, 3, 8, 8}, 3);
  request.decoding.steps = 2;
  EXPECT_EQ(make_pictures(larger, request, draws).condition.size(1), 2);
  request.rows = request.columns = 9;
  EXPECT_THROW(make_pictures(larger, request, draws), Error) << "too large a grid";
}

TEST(PictureQuality, KnowsTheSamePictureAndNoise) {
  const at::Tensor real = pictures({2, 3, 24, 20}, 1);
  EXPECT_NEAR(psnr(real, real)[0].item<double>(), 100, 1e-3);
  EXPECT_NEAR(ssim(real, real)[1].item<double>(), 1, 1e-5);
  EXPECT_NEAR(psnr(at::zeros_like(real), at::full_like(real, 0.1))[0].item<double>(), 20, 1e-3);
  EXPECT_LT(ssim(real, pictures({2, 3, 24, 20}, 2))[0].item<double>(), 0.3);
  EXPECT_EQ(ssim(pictures({1, 1, 4, 3}, 3), pictures({1, 1, 4, 3}, 4)).size(0), 1)
      << "smaller than the window";
}

TEST(Pictures, TensorsAndGrids) {
  const at::Tensor picture = pictures({3, 5, 7}, 1);
  const Image image = picture_image(picture);
  EXPECT_LT((picture_tensor(image) - picture).abs().max().item<double>(), 0.5 / 255 + 1e-6);
  EXPECT_EQ(picture_tensor(image, 1).size(0), 1);
  const Image grid = picture_grid({picture, picture, picture}, 2);
  EXPECT_EQ(grid.width, 2 * (7 + 2) + 2);
  EXPECT_EQ(grid.height, 2 * (5 + 2) + 2);
  EXPECT_EQ(picture_bytes(at::full({1, 1, 1}, 1.5)).item<int>(), 255);
  EXPECT_EQ(picture_bytes(at::full({1, 1, 1}, 1.5), OutOfRange::wrap).item<int>(), 382 - 256);

  PicturePreparation how;
  how.height = 8;
  how.width = 12;
  how.crop = "random";
  for (const double at : {0.0, 0.5, 0.999}) {
    const Image made = prepare_picture(Image(40, 17), how, {true, at, at});
    EXPECT_EQ(made.width, 12);
    EXPECT_EQ(made.height, 8);
  }
}

}  // namespace muse_model_test
}  // namespace melete::muse
