// Properties of the codec's layers: what may depend on what in time, reshaped convolutions against plain
// ones, and every hand-written gradient against finite differences or the formula it stands for.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "gradient_check.h"
#include "kernels/adam.h"
#include "nn/activation.h"
#include "nn/conv.h"
#include "nn/gating.h"
#include "nn/local_transformer.h"
#include "systems/soundstream/soundstream.h"

namespace melete {
namespace codec_test {

namespace F = torch::nn::functional;
using torch::autograd::grad;

SoundStreamConfig small_codec() {
  SoundStreamConfig config;
  config.channels = 4;
  config.strides = {2, 3, 4};
  config.channel_multiples = {2, 2, 4};
  config.dim = 16;
  config.attention = false;
  config.attention_heads = 2;
  config.attention_head_dim = 8;
  config.attention_window = 8;
  config.quantizer.quantizers = 3;
  config.quantizer.codebook_size = 32;
  config.quantizer.kmeans_init = false;
  return config;
}

// Changes the wave from `sample` on and looks for the first frame, and the first sample of the output, that
// differ.
void expect_causal(const SoundStreamConfig& config, const std::string& what) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(3);
  SoundStream codec(config);
  codec->eval();
  const int64_t frame = codec->samples_per_frame(), frames = 60;
  const at::Tensor wave = noise({2, 1, frames * frame}, 1) * 0.3;
  // Reflected padding shows the first frames what comes after them; nothing else may see the future.
  const int64_t earliest = config.pad_mode == "reflect" ? 20 : 1;
  for (const int64_t sample :
       {earliest * frame, earliest * frame + 1, 41 * frame - 1, 50 * frame + frame / 2}) {
    at::Tensor changed = wave.clone();
    changed.narrow(2, sample, wave.size(2) - sample) = noise({2, 1, wave.size(2) - sample}, 2);
    // A frame is complete with its last sample: frame n covers samples up to (n + 1) * frame - 1.
    const int64_t untouched = sample / frame;
    const at::Tensor a = codec->encode(wave), b = codec->encode(changed);
    EXPECT_TRUE(at::equal(a.narrow(1, 0, untouched), b.narrow(1, 0, untouched)) ||
                at::allclose(a.narrow(1, 0, untouched), b.narrow(1, 0, untouched), 1e-5, 1e-6))
        << what << ": an encoded frame before sample " << sample << " depends on it";
    EXPECT_FALSE(
        at::allclose(a.narrow(1, untouched, frames - untouched), b.narrow(1, untouched, frames - untouched)))
        << what;

    const auto heard_a = codec->forward(wave), heard_b = codec->forward(changed);
    EXPECT_TRUE(at::equal(heard_a.quantized.codes.narrow(2, 0, untouched),
                          heard_b.quantized.codes.narrow(2, 0, untouched)))
        << what << ": a code before sample " << sample << " depends on it";
    EXPECT_TRUE(at::allclose(heard_a.wave.narrow(2, 0, untouched * frame),
                             heard_b.wave.narrow(2, 0, untouched * frame), 1e-5, 1e-6))
        << what << ": the output before sample " << sample << " depends on it";
  }
}

TEST(Codec, SeesOnlyThePast) {
  for (const char* pad_mode : {"reflect", "constant"}) {
    SoundStreamConfig config = small_codec();
    config.pad_mode = pad_mode;
    expect_causal(config, std::string("plain, ") + pad_mode);
  }
  SoundStreamConfig attention = small_codec();
  attention.attention = true;
  attention.attention_depth = 2;
  expect_causal(attention, "rotary attention");
  attention.attention_position_bias = true;
  expect_causal(attention, "attention with position bias");
  SoundStreamConfig gated = small_codec();
  gated.squeeze_excite = gated.gate_loop = true;
  expect_causal(gated, "squeeze-excite and gate loop");
}

TEST(Codec, TokensDecodeToWhatForwardGives) {
  const at::NoGradGuard no_grad;
  for (const int64_t groups : {1, 2}) {
    SoundStreamConfig config = small_codec();
    config.attention = true;
    config.quantizer.groups = groups;
    torch::manual_seed(5);
    SoundStream codec(config);
    codec->train();
    const at::Tensor wave = noise({2, 1, 24 * 30}, 4);
    const at::Tensor codes = codec->tokenize(wave);
    EXPECT_TRUE(codec->is_training()) << "tokenize must leave the mode as it was";
    codec->eval();
    const auto whole = codec->forward(wave);
    EXPECT_TRUE(at::equal(codes, whole.quantized.codes));
    expect_close(codec->decode_codes(codes), whole.wave, 1e-5, "grouped codes");
    const at::Tensor flat = codes.permute({1, 2, 0, 3}).flatten(2);  // [batch, frames, groups * quantizers]
    expect_close(codec->decode_codes(flat), whole.wave, 1e-5, "flat codes");
  }
}

// Narrow and wide: widths that are multiples of 16 take kernels of our own, others LibTorch's.
constexpr std::pair<int64_t, int64_t> kWidths[] = {{3, 4}, {5, 16}, {16, 5}, {16, 48}};

// Biases start at zero, which would hide a bias that is forgotten.
template <class Conv>
void with_bias(Conv& conv) {
  const at::NoGradGuard no_grad;
  conv->bias.copy_(noise(conv->bias.sizes(), 77));
}

TEST(Conv, TransposedEqualsTorchCutToLength) {
  torch::manual_seed(1);
  constexpr int64_t kTime = 11;
  for (const auto& [in, out] : kWidths)
    for (const auto& [kernel, stride] : std::vector<std::pair<int64_t, int64_t>>{
             {4, 2}, {6, 3}, {16, 8}, {5, 2}, {7, 3}, {3, 3}, {2, 3}, {1, 1}, {9, 4}}) {
      const std::string what = fmt::format("{} to {}, kernel {} stride {}", in, out, kernel, stride);
      CausalConvTranspose1d conv(in, out, kernel, stride);
      with_bias(conv);
      const at::Tensor x = noise({2, in, kTime}, 7).requires_grad_();
      const at::Tensor y = conv(x);
      at::Tensor full = at::conv_transpose1d(x, conv->weight, conv->bias, at::IntArrayRef(stride));
      // A kernel shorter than the stride leaves a tail of bias alone, which LibTorch's form leaves out.
      if (const int64_t tail = kTime * stride - full.size(2); tail > 0)
        full = at::cat({full, conv->bias.view({1, out, 1}).expand({2, out, tail})}, 2);
      const at::Tensor expected = full.narrow(2, 0, kTime * stride);
      expect_close(y, expected, 1e-5, what);
      const at::Tensor pull = noise({2, kTime * stride, out}, 8).transpose(1, 2);
      const auto given = grad({y}, {x, conv->weight, conv->bias}, {pull});
      const auto wanted = grad({expected}, {x, conv->weight, conv->bias}, {pull});
      for (size_t i = 0; i < 3; ++i) expect_close(given[i], wanted[i], 2e-5, what + ", gradient");
    }
}

TEST(Conv, PaddedStridedDilatedEqualsPlain) {
  torch::manual_seed(2);
  struct Case {
    int64_t kernel, stride, dilation;
  };
  for (const auto& [in, out] : kWidths)
    for (const Case& c : {Case{1, 1, 1}, Case{4, 2, 1}, Case{16, 8, 1}, Case{7, 1, 9}, Case{5, 2, 1},
                          Case{6, 3, 1}, Case{4, 2, 3}, Case{3, 3, 1}})
      for (const char* mode : {"reflect", "constant", "replicate", "circular"})
        for (const Activation activation : {Activation::none, Activation::elu})
          for (const int64_t time : {96, 97}) {
            const std::string what =
                fmt::format("{} to {}, kernel {} stride {} dilation {} {} {} frames{}", in, out, c.kernel,
                            c.stride, c.dilation, mode, time, activation == Activation::elu ? ", elu" : "");
            CausalConv1d conv(in, out, c.kernel, mode, c.stride, c.dilation);
            with_bias(conv);
            const at::Tensor x = noise({2, in, time}, 3).requires_grad_();
            const int64_t padding = c.dilation * (c.kernel - 1) + 1 - c.stride, none = 0;
            F::PadFuncOptions pad({padding, 0});
            if (std::string(mode) == "reflect") pad.mode(torch::kReflect);
            if (std::string(mode) == "replicate") pad.mode(torch::kReplicate);
            if (std::string(mode) == "circular") pad.mode(torch::kCircular);
            const at::Tensor padded = F::pad(x, pad);
            at::Tensor expected = at::conv1d(padded, conv->weight, conv->bias, at::IntArrayRef(c.stride),
                                             at::IntArrayRef(none), at::IntArrayRef(c.dilation));
            if (activation == Activation::elu) expected = at::elu(expected);
            const at::Tensor y = conv->forward(x, activation);
            expect_close(y, expected, 2e-5, what);
            const at::Tensor pull = noise({2, y.size(2), out}, 8).transpose(1, 2);
            const auto given = grad({y}, {x, conv->weight, conv->bias}, {pull});
            const auto wanted = grad({expected}, {x, conv->weight, conv->bias}, {pull});
            for (size_t i = 0; i < 3; ++i) expect_close(given[i], wanted[i], 2e-5, what + ", gradient");
          }
  CausalConv1d conv(2, 2, 5);
  EXPECT_ANY_THROW(conv(noise({1, 2, 4}, 1))) << "there is not enough to reflect";
  CausalConv1d around(2, 2, 5, "circular");
  EXPECT_EQ(around(noise({1, 2, 4}, 1)).size(2), 4);
  EXPECT_ANY_THROW(around(noise({1, 2, 3}, 1))) << "there is not enough to go round";
}

TEST(Conv, GradientsAreFiniteDifferences) {
  torch::manual_seed(4);
  CausalConv1d conv(16, 16, 7, "reflect", 1, 3);
  CausalConvTranspose1d up(16, 16, 6, 3);
  const at::Tensor x = noise({1, 16, 30}, 5);
  expect_gradient([&](const at::Tensor& t) { return conv->forward(t, Activation::elu).pow(2).sum(); }, x, 60,
                  1e-3, 5e-3, "convolution with ELU");
  expect_gradient([&](const at::Tensor& t) { return up(t).pow(2).sum(); }, x, 61, 1e-3, 5e-3, "transposed");
}

TEST(Activation, GeluGradientIsRightForAnyMemoryLayout) {
  const at::Tensor x = noise({5, 6, 33}, 9).requires_grad_();
  const at::Tensor formula = 0.5 * x * (1 + at::erf(x / std::sqrt(2.0)));
  expect_close(melete::gelu(x), formula, 1e-6, "value");
  const at::Tensor whole = noise({5, 33, 6}, 10);
  // Transposed, sliced and expanded gradients; LibTorch's own GELU returns uninitialised memory for these.
  for (const at::Tensor& pull : {whole.transpose(1, 2), noise({5, 6, 66}, 11).slice(2, 0, 66, 2),
                                 noise({5, 1, 33}, 12).expand({5, 6, 33})}) {
    ASSERT_FALSE(pull.is_contiguous());
    expect_close(grad({melete::gelu(x)}, {x}, {pull}, true)[0], grad({formula}, {x}, {pull}, true)[0], 1e-5,
                 "gradient");
  }
  // An input that is itself a view.
  const at::Tensor view = x.transpose(0, 2);
  expect_close(melete::gelu(view), formula.transpose(0, 2), 1e-6, "value of a view");
  const at::Tensor pull = noise({33, 6, 5}, 13);
  expect_close(grad({melete::gelu(view)}, {x}, {pull}, true)[0],
               grad({formula.transpose(0, 2)}, {x}, {pull}, true)[0], 1e-5, "gradient of a view");
  const at::Tensor sign = noise({5, 6, 33}, 14);
  expect_gradient([&](const at::Tensor& t) { return (melete::gelu(t) * sign).sum(); }, x.detach(), 70, 1e-2,
                  1e-3, "gelu");
  expect_gradient([&](const at::Tensor& t) { return gated_gelu(t, GateOrder::value_first).pow(2).sum(); },
                  noise({3, 5, 16}, 15), 80, 1e-3, 2e-3, "gated gelu");
}

TEST(Adam, FusedStepFollowsTheFormula) {
  AdamSettings settings;
  settings.learning_rate = 0.01;
  settings.weight_decay = 0.1;
  settings.gradient_scale = 0.5;
  at::Tensor parameter = noise({70001}, 30), first = at::zeros({70001}), second = at::zeros({70001});
  at::Tensor p = parameter.to(at::kDouble), m = at::zeros_like(p), v = at::zeros_like(p);
  for (settings.step = 1; settings.step <= 5; ++settings.step) {
    const at::Tensor gradient = noise({70001}, 31 + static_cast<uint64_t>(settings.step));
    adam_update(parameter, gradient, first, second, settings);
    const at::Tensor g = gradient.to(at::kDouble) * 0.5;
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    const at::Tensor unbiased_m = m / (1 - std::pow(0.9, settings.step)),
                     unbiased_v = v / (1 - std::pow(0.99, settings.step));
    p = p * (1 - 0.01 * 0.1) - 0.01 * unbiased_m / (unbiased_v.sqrt() + 1e-8);
  }
  EXPECT_LT((parameter.to(at::kDouble) - p).abs().max().item<double>(), 2e-6);
}

TEST(GateLoop, ScanEqualsTheLoop) {
  for (const int64_t time : {1, 2, 3, 7, 16, 37}) {
    const at::Tensor decay = at::sigmoid(noise({2, time, 5}, 40)).requires_grad_(),
                     input = noise({2, time, 5}, 41).requires_grad_();
    std::vector<at::Tensor> states{input.select(1, 0)};
    for (int64_t t = 1; t < time; ++t)
      states.push_back(decay.select(1, t) * states.back() + input.select(1, t));
    const at::Tensor loop = at::stack(states, 1), scan = linear_scan(decay, input),
                     pull = noise({2, time, 5}, 42);
    expect_close(scan, loop, 1e-5, fmt::format("{} frames", time));
    const auto given = grad({scan}, {decay, input}, {pull}, true, false, true),
               wanted = grad({loop}, {decay, input}, {pull}, true, false, true);
    for (size_t i = time == 1 ? 1 : 0; i < 2; ++i) expect_close(given[i], wanted[i], 1e-5, "gradient");
  }
}

TEST(LocalAttention, WindowAndPaddingBoundWhatIsSeen) {
  const at::NoGradGuard no_grad;
  for (const bool bias : {false, true}) {
    LocalTransformerConfig config;
    config.dim = 12;
    config.heads = 2;
    config.head_dim = 6;
    config.window = 5;
    config.dynamic_position_bias = bias;
    torch::manual_seed(6);
    LocalTransformer transformer(config);
    const at::Tensor x = noise({2, 23, 12}, 50), y = transformer(x);
    for (int64_t frame = 0; frame < 23; ++frame) {
      at::Tensor changed = x.clone();
      changed.select(1, frame).copy_(noise({2, 12}, 51));
      const at::Tensor moved = (transformer(changed) - y).abs().amax({0, 2});
      for (int64_t t = 0; t < 23; ++t) {
        const bool seen = t >= frame && t <= frame + 5;
        if (seen) {
          EXPECT_GT(moved[t].item<double>(), 1e-6) << "frame " << t << " should see " << frame;
        } else {
          EXPECT_LT(moved[t].item<double>(), 1e-5) << "frame " << t << " sees " << frame;
        }
      }
    }
    // Any length gives what a longer one gives for the frames they share: padding to whole windows is not
    // seen.
    for (const int64_t length : {1, 4, 5, 6, 13})
      expect_close(transformer(x.narrow(1, 0, length)), y.narrow(1, 0, length), 1e-5,
                   fmt::format("{} frames", length));
  }
}

}  // namespace codec_test
}  // namespace melete
