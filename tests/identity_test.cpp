// Identities as the first programs gave them, written down: whatever is added to a model's settings, tokens
// and stages that name the model must find it again. Where one of these fails because of a new setting, that
// setting belongs to the younger ones of the model (nn/identity.h); the literal stays.
#include "nn/identity.h"

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "nn/frozen.h"
#include "pretrained/encodec.h"
#include "pretrained/kmeans_tokenizer.h"
#include "pretrained/t5.h"
#include "pretrained/vq_wav2vec.h"
#include "systems/soundstream/codec.h"
#include "systems/soundstream/latents.h"

namespace melete {
namespace identity_test {

// The same numbers on every machine and with every LibTorch.
at::Tensor known_numbers(const std::string& name, at::IntArrayRef shape) {
  Rng rng(random_key(1, name));
  at::Tensor made = at::empty(shape, at::kFloat);
  for (float *at = made.data_ptr<float>(), *end = at + made.numel(); at != end; ++at)
    *at = static_cast<float>(rng.integer(-512, 512)) / 1024;
  return made;
}

template <class Model>
Model with_known_weights(Model model) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors_of(*model))
    at::Tensor(tensor).copy_(known_numbers(name, tensor.sizes()));
  return model;
}

SoundStreamConfig tiny_soundstream() {
  SoundStreamConfig config;
  config.sample_rate_hz = 8000;
  config.channels = 4;
  config.strides = {2, 4};
  config.channel_multiples = {1, 2};
  config.dim = 12;
  config.attention_window = 8;
  config.attention_heads = 2;
  config.attention_head_dim = 8;
  config.quantizer.quantizers = 4;
  config.quantizer.codebook_size = 37;
  return config;
}

TEST(Identity, OfASoundStream) {
  const SoundStream model = with_known_weights(SoundStream(tiny_soundstream()));
  EXPECT_EQ(SoundStreamCodec(model).identity(), "71817d8154e523f19f23841142a8039d");
  EXPECT_EQ(SoundStreamLatents(model).identity(), "ef0c132162e8526c7dada2f1ddf49fd4");
}

TEST(Identity, OfAGroupedSoundStream) {
  SoundStreamConfig config = tiny_soundstream();
  config.quantizer.groups = 2;
  const SoundStream model = with_known_weights(SoundStream(config));
  EXPECT_EQ(SoundStreamCodec(model).identity(), "35a97bfbf4d20f262722f36b8ce89025");
}

TEST(Identity, OfAnEncodec) {
  EncodecConfig config;
  config.dim = 8;
  config.filters = 4;
  config.ratios = {4, 2};
  config.codebooks = 4;
  config.codebook_size = 16;
  config.quantizers = 3;
  EXPECT_EQ(EncodecCodec(with_known_weights(Encodec(config))).identity(), "f4feaf56945758be998abf8970e6b54d");
}

TEST(Identity, OfAVqWav2Vec) {
  VqWav2VecConfig config;
  config.conv_dims = {8, 8};
  config.conv_kernels = {10, 8};
  config.conv_strides = {5, 4};
  config.codebook_size = 16;
  EXPECT_EQ(VqWav2VecTokenizer(with_known_weights(VqWav2Vec(config))).identity(),
            "f0ad6b5b337b799b7d86bf15c1279d83");
}

TEST(Identity, OfAKmeansTokenizer) {
  auto features = std::make_unique<MfccFeatures>();
  const int64_t dim = features->dim();
  EXPECT_EQ(KmeansTokenizer(std::move(features), {known_numbers("centroids", {16, dim}), {}, {}}).identity(),
            "f4bd350402f8b5dd7949b2a3149c6d41");
}

TEST(Identity, OfAT5) {
  T5Config config;
  config.dim = 8;
  config.layers = 1;
  EXPECT_EQ(
      T5TextEncoder(with_known_weights(T5Encoder(config)), std::make_shared<ByteTokenizer>()).identity(),
      "bd1b1a48380876f3c9b988c84751b3c7");
}

}  // namespace identity_test
}  // namespace melete
