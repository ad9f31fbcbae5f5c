// Models that are only used, on the pretend GPU: each computes there, answers on the device that it was asked
// from, and says what it says on the CPU.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "device/pretend_gpu.h"
#include "device/untrained_runs.h"
#include "dist/group.h"
#include "every_recipe.h"
#include "gradient_check.h"
#include "nn/attention.h"
#include "nn/frozen.h"
#include "pretrained/import.h"
#include "pretrained/vocos_features.h"
#include "roles/open.h"
#include "systems/soundstream/codec.h"
#include "systems/soundstream/latents.h"
#include "systems/soundstream/load.h"
#include "systems/vocos/griffin_lim.h"
#include "systems/voicebox/aligner.h"

namespace melete::device_frozen_test {

using melete::testing::gpu_traffic;
using melete::testing::pretend_gpu;
using melete::testing::UntrainedRuns;

// ask(model) on both devices, and of the one on the GPU with a question that is there, too.
template <class Make, class Ask>
void expect_same_answers(Make make, const at::Tensor& question, Ask ask, double tolerance) {
  torch::manual_seed(5);
  const auto here = make();
  torch::manual_seed(5);
  const auto there = make();
  there->move_to(pretend_gpu());
  const at::Tensor answer = ask(*here, question);
  const int64_t before = gpu_traffic().copies_out;
  const at::Tensor from_host = ask(*there, question);
  EXPECT_GT(gpu_traffic().copies_out, before) << "it did not compute there";
  EXPECT_TRUE(from_host.device().is_cpu());
  const at::Tensor from_gpu = ask(*there, question.to(pretend_gpu()));
  EXPECT_TRUE(from_gpu.is_cuda());
  for (const at::Tensor& other : {from_host, from_gpu.cpu()}) {
    ASSERT_EQ(answer.sizes(), other.sizes());
    if (at::isFloatingType(answer.scalar_type())) {
      EXPECT_LT((answer - other).abs().max().item<double>(), tolerance);
    } else {
      EXPECT_GT(answer.eq(other).to(at::kFloat).mean().item<double>(), 0.99);
    }
  }
}

const auto kEncode = [](const auto& model, const at::Tensor& x) { return model.encode(x); };
const auto kDecode = [](const auto& model, const at::Tensor& x) { return model.decode(x); };
const auto kTokenize = [](const auto& model, const at::Tensor& x) { return model.tokenize(x); };

Encodec small_encodec() {
  EncodecConfig config;
  config.dim = 8;
  config.filters = 2;
  config.ratios = {4, 3, 2};
  config.codebooks = 3;
  config.quantizers = 2;
  config.codebook_size = 16;
  return Encodec(config);
}

Vocos small_vocos(int64_t input_dim, int64_t hop, int64_t codebook_rows = 0) {
  VocosConfig config;
  config.input_dim = input_dim;
  config.dim = 16;
  config.inner_dim = 24;
  config.layers = 2;
  config.n_fft = 4 * hop;
  config.hop = hop;
  config.codebook_rows = codebook_rows;
  if (codebook_rows > 0) config.edges = "same";
  return Vocos(config);
}

TEST(FrozenOnAGpu, Codecs) {
  const auto encodec = [] { return std::make_unique<EncodecCodec>(small_encodec()); };
  expect_same_answers(encodec, noise({2, 240}, 1) * 0.3, kEncode, 0);
  expect_same_answers(encodec, at::randint(16, {2, 9, 2}, at::kLong), kDecode, 1e-5);
  const auto soundstream = [] {
    return std::make_unique<SoundStreamCodec>(
        load_codec(UntrainedRuns::shared() / "codec.safetensors").model);
  };
  expect_same_answers(soundstream, noise({2, 4800}, 2) * 0.3, kEncode, 0);
  expect_same_answers(soundstream, at::randint(16, {2, 9, 2}, at::kLong), kDecode, 1e-4);
}

TEST(FrozenOnAGpu, SemanticTokenizers) {
  VqWav2VecConfig vq;
  vq.conv_dims = {8, 8};
  vq.conv_kernels = {10, 4};
  vq.conv_strides = {5, 2};
  vq.codebook_size = 12;
  expect_same_answers([&] { return std::make_unique<VqWav2VecTokenizer>(VqWav2Vec(vq)); }, noise({2, 800}, 3),
                      kTokenize, 0);
  HubertConfig hubert;
  hubert.conv_dims = {8, 8};
  hubert.conv_kernels = {10, 4};
  hubert.conv_strides = {5, 2};
  hubert.dim = 16;
  hubert.layers = 2;
  hubert.heads = 2;
  hubert.feed_forward_dim = 24;
  hubert.position_kernel = 8;
  hubert.position_groups = 4;
  expect_same_answers(
      [&] {
        auto features = std::make_unique<HubertFeatures>(Hubert(hubert), 2);
        return std::make_unique<KmeansTokenizer>(
            std::move(features), Centroids{at::randn({12, 16}), at::randn({16}), at::rand({16}) + 0.5});
      },
      noise({2, 800}, 4), kTokenize, 0);
  expect_same_answers([&] { return std::make_unique<HubertFeatures>(Hubert(hubert), 1); }, noise({2, 800}, 4),
                      [](const auto& model, const at::Tensor& x) { return model.frames_of(x); }, 1e-4);
  expect_same_answers([] { return std::make_unique<MfccFeatures>(); }, noise({2, 4000}, 4),
                      [](const auto& model, const at::Tensor& x) { return model.frames_of(x); }, 1e-2);
}

TEST(FrozenOnAGpu, AudioFeatures) {
  MelFramesConfig mel;
  mel.rate_hz = 8000;
  mel.mels = 12;
  mel.n_fft = mel.window = 64;
  mel.hop = 16;
  const at::Tensor wave = noise({2, 800}, 6) * 0.3, frames = noise({2, 20, 12}, 7);
  const auto vocos = [&] { return std::make_unique<MelVocos>(mel, small_vocos(12, 16)); };
  expect_same_answers(vocos, wave, kEncode, 1e-4);
  expect_same_answers(vocos, frames, kDecode, 1e-3);
  const auto griffin = [&] { return std::make_unique<MelGriffinLim>(mel, 3); };
  expect_same_answers(griffin, wave, kEncode, 1e-4);
  expect_same_answers(griffin, frames, kDecode, 1e-3);
  const auto encodec = [] {
    return std::make_unique<EncodecVocos>(small_encodec(), small_vocos(8, 24, 3 * 16), 0);
  };
  expect_same_answers(encodec, wave, kEncode, 1e-4);
  expect_same_answers(encodec, noise({2, 20, 8}, 8), kDecode, 1e-3);
  const auto latents = [] {
    return std::make_unique<SoundStreamLatents>(
        load_codec(UntrainedRuns::shared() / "codec.safetensors").model);
  };
  expect_same_answers(latents, noise({1, 4800}, 9) * 0.3, kEncode, 1e-3);
}

// Words come from the host, and so do the answers.
TEST(FrozenOnAGpu, TextEncoder) {
  T5Config config;
  config.vocabulary = 512;
  config.dim = 16;
  config.head_dim = 8;
  config.heads = 2;
  config.layers = 2;
  config.feed_forward_dim = 24;
  const auto make = [&] {
    torch::manual_seed(5);
    return std::make_unique<T5TextEncoder>(T5Encoder(config), make_text_tokenizer({}));
  };
  const auto here = make(), there = make();
  there->move_to(pretend_gpu());
  const std::vector<std::string> texts = {"a slow organ", "bells"};
  const TextEmbeddings a = here->encode(texts), b = there->encode(texts);
  EXPECT_TRUE(b.embeddings.device().is_cpu() && b.mask.device().is_cpu());
  expect_close(b.embeddings, a.embeddings, 1e-4);
  EXPECT_TRUE(b.mask.equal(a.mask));
}

// What stands between recordings and a training on the GPU: the same batches.
TEST(FrozenOnAGpu, InTheWayOfTheData) {
  const auto& at = UntrainedRuns::shared();
  const std::string semantic = at / "tokenizer.safetensors", codec = at / "codec.safetensors";
  const std::vector<std::pair<std::string, nlohmann::ordered_json>> recipes = {
      {"coarse", {{"semantic_from", semantic}, {"codec_from", codec}}},
      {"musiclm-coarse",
       {{"semantic_from", semantic}, {"codec_from", codec}, {"condition_from", at / "mulan.safetensors"}}},
      {"voicebox", {{"semantic_from", semantic}, {"features_from", codec}, {"told_by", "semantic"}}},
      {"spear-pretrain", {{"semantic_from", semantic}}},
      {"maskgit", {{"vqgan_from", at / "vqgan.safetensors"}, {"data", {{"valid_fraction", 0}}}}}};
  for (const auto& [name, settings] : recipes) {
    SCOPED_TRACE(name);
    const auto first_batch = [&, &called = name, &given = settings](at::Device device) {
      const std::unique_ptr<Recipe> recipe = make_recipe(called);
      Schema schema = recipe->schema();
      if (const std::string file = tiny_file(called); !file.empty()) schema.apply_file(file);
      schema.apply(given);
      recipe->data_from = called == "maskgit" ? at / "shapes" : at / "music";
      recipe->batch_size = 2;
      recipe->frozen_device = device;
      recipe->settle();
      Group alone;
      Reporter silent;
      return recipe->open({3, alone, silent}).training->batch(0);
    };
    const Batch here = first_batch(at::kCPU);
    const int64_t before = gpu_traffic().copies_out;
    const Batch there = first_batch(pretend_gpu());
    EXPECT_GT(gpu_traffic().copies_out, before) << "its frozen models are not there";
    for (const char* column : {"semantic", "acoustic", "joint", "frames", "tokens"}) {
      if (!here.has(column)) continue;
      const at::Tensor a = here[column], b = there[column];
      ASSERT_EQ(a.sizes(), b.sizes()) << column;
      if (at::isFloatingType(a.scalar_type())) {
        EXPECT_LT((a - b).abs().max().item<double>(), 1e-2) << column;
      } else {
        EXPECT_GT(a.eq(b).to(at::kFloat).mean().item<double>(), 0.99) << column;
      }
    }
  }
}

// A batch goes over through pinned memory and without waiting; lengths stay.
TEST(FrozenOnAGpu, BatchesGoOverWithoutWaiting) {
  Batch batch;
  batch.set("wave", at::randn({3, 8}));
  batch.set("ids", at::ones({3, 2}, at::kLong));
  batch.set(Batch::length_column("wave"), at::full({3}, 8, at::kLong));
  const at::Tensor wave = batch["wave"];
  const auto before = gpu_traffic();
  batch.move_to(pretend_gpu());
  const auto after = gpu_traffic();
  EXPECT_EQ(after.copies_in - before.copies_in, 2);
  EXPECT_EQ(after.pinned_in - before.pinned_in, 2);
  EXPECT_EQ(after.waiting_in, before.waiting_in);
  EXPECT_TRUE(batch["wave"].is_cuda() && batch["ids"].is_cuda());
  EXPECT_TRUE(batch.lengths("wave").device().is_cpu());
  EXPECT_TRUE(batch["wave"].cpu().equal(wave));
}

// The search that does not wait finds the path of the one that does.
TEST(FrozenOnAGpu, AlignsAsTheCpuDoes) {
  const at::Tensor scores = noise({4, 30, 9}, 11);
  const at::Tensor frames = at::tensor({30, 21, 9, 12}), counts = at::tensor({9, 4, 9, 1});
  const at::Tensor here = voicebox::monotonic_durations(scores, frames, counts);
  const int64_t before = gpu_traffic().copies_out;
  const at::Tensor there = voicebox::monotonic_durations(scores.to(pretend_gpu()), frames, counts);
  EXPECT_EQ(gpu_traffic().copies_out, before);
  EXPECT_TRUE(there.cpu().equal(here));
}

// Where LibTorch has fused attention, it is the same attention.
TEST(FrozenOnAGpu, AttendsAsTheCpuDoes) {
  for (const bool causal : {false, true})
    for (const bool biased : {false, true})
      for (const int64_t queries : {5, 12}) {
        AttentionOptions how;
        how.scale = 0.3;
        how.causal = causal;
        if (biased) how.bias = noise({queries, 4, 12}, 1);
        const at::Tensor q = noise({2, queries, 4, 32}, 2), k = noise({2, 12, 2, 32}, 3),
                         v = noise({2, 12, 2, 32}, 4);
        AttentionOptions there = how;
        if (biased) there.bias = how.bias.to(pretend_gpu());
        const at::Tensor made = attend(q.to(pretend_gpu()), k.to(pretend_gpu()), v.to(pretend_gpu()), there);
        expect_close(made.cpu(), attend_by_operators(q, k, v, how), 1e-5);
        if (has_fused_attention(how))
          expect_close(attend_fused(q, k, v, how), attend_by_operators(q, k, v, how), 1e-5);
      }
}

}  // namespace melete::device_frozen_test
