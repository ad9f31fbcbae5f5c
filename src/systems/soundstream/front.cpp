#include "systems/soundstream/front.h"

#include <algorithm>

#include "core/base/random.h"
#include "core/device.h"
#include "nn/lapped.h"
#include "nn/tone_bank.h"
#include "systems/soundstream/soundstream.h"

namespace melete {

namespace {

// Companded coefficients of speech and music come to about one; the logarithm of their size likewise.
constexpr double kFrontLevel = 2, kLogSlope = 0.3;
constexpr int64_t kSignRows =
    1024;  // frames after which drawn signs repeat: ten seconds at 100 frames a second

at::Tensor logarithm(const at::Tensor& size) {
  return kLogSlope * at::log(size) + 1;
}

// The same on every machine: signs are part of what the codec is.
at::Tensor draw_signs(int64_t hop, int64_t channels, int64_t first_drawn) {
  at::Tensor signs = at::ones({kSignRows, channels, hop});
  auto sign = signs.accessor<float, 3>();
  Rng rng(random_key(0, "signs of a lapped front"));
  for (int64_t row = 0; row < kSignRows; ++row)
    for (int64_t channel = 0; channel < channels; ++channel)
      for (int64_t i = first_drawn; i < hop; ++i)
        if ((rng.next() >> 63) != 0) sign[row][channel][i] = -1;
  return signs.transpose(0, 1).contiguous();
}

// Coefficients of a lapped transform.
class LappedFront final : public SoundFront {
 public:
  explicit LappedFront(const SoundStreamConfig& config) : transform_(config.front_hop) {
    if (config.signed_coefficients() < config.front_hop)
      signs_ = draw_signs(config.front_hop, config.input_channels, config.signed_coefficients());
  }
  int64_t values() const override { return transform_.hop(); }
  int64_t seen() const override { return 3 * transform_.hop(); }

  Frames analyse(const at::Tensor& wave, int64_t ahead, at::Tensor*) const override {
    const int64_t silence[] = {0, transform_.hop() - ahead};
    const auto frames = transform_.analyse(silence[1] > 0 ? at::constant_pad_nd(wave, silence) : wave);
    const at::Tensor size = at::sqrt(frames.cosines.square() + frames.sines.square() + 1e-8);
    const at::Tensor companded = kFrontLevel * compress(frames.cosines);
    return {companded, at::cat({companded, kFrontLevel * compress(frames.sines), logarithm(size)}, 2)};
  }

  at::Tensor synthesise(const at::Tensor& values, int64_t first, at::Tensor* before) const override {
    at::Tensor drawn = values;
    if (signs_.defined()) {
      const at::Tensor numbers = at::arange(first, first + values.size(1), at::kLong).remainder_(kSignRows);
      const at::Tensor signs = sent_to(values.device(), signs_.index_select(1, numbers));
      drawn = (values.unflatten(0, {-1, signs.size(0)}) * signs).flatten(0, 1);
    }
    return transform_.synthesise(expand(drawn / kFrontLevel), before);
  }

  // The lowest coefficients of every frame of the front, as many as there are channels for.
  void start_shortcuts(at::Tensor encoder, at::Tensor decoder, int64_t channels) const override {
    const int64_t dim = encoder.size(0), around = encoder.size(1), of_frame = channels * values();
    const int64_t fronts = around / of_frame;
    at::Tensor lowest = at::zeros({dim, around});
    for (int64_t i = 0; i < std::min(dim, around); ++i) lowest[i][i % fronts * of_frame + i / fronts] = 1;
    encoder.copy_(lowest);
    decoder.copy_(lowest.t());
  }

  int64_t first_frames() const override { return signs_.defined() ? kSignRows : 0; }

 private:
  LappedTransform transform_;
  at::Tensor signs_;  // [channels, kSignRows, hop], repeated for ever: 1 where the decoder's own sign stands
};

// Levels of tones and of bands of noise.
class ToneFront final : public SoundFront {
 public:
  explicit ToneFront(const SoundStreamConfig& config) : bank_(config.tone_bank()) {}
  int64_t values() const override { return bank_.levels(); }
  int64_t seen() const override { return 2 * bank_.levels(); }

  Frames analyse(const at::Tensor& wave, int64_t ahead, at::Tensor* before) const override {
    const int64_t reach = bank_.config().reach(), past = reach - bank_.config().hop;
    const at::Tensor start =
        before != nullptr && before->defined() ? *before : at::zeros({wave.size(0), past}, wave.options());
    const at::Tensor known = at::cat({start, wave}, 1);
    if (before != nullptr) *before = known.narrow(1, known.size(1) - ahead - past, past).clone();
    const int64_t silence[] = {0, reach - ahead};
    const at::Tensor levels = bank_.analyse(at::constant_pad_nd(known, silence));
    const at::Tensor companded = kFrontLevel * compress(levels);
    return {companded, at::cat({companded, logarithm(levels.clamp_min(1e-4))}, 2)};
  }

  at::Tensor synthesise(const at::Tensor& values, int64_t first, at::Tensor* before) const override {
    return bank_.synthesise(expand(values / kFrontLevel), first, before);
  }

  // The mean of the frames, as many levels as there are channels for.
  void start_shortcuts(at::Tensor encoder, at::Tensor decoder, int64_t channels) const override {
    const int64_t of_frame = channels * values(), fronts = encoder.size(1) / of_frame;
    const at::Tensor same = at::eye(encoder.size(0), of_frame).repeat({1, fronts});
    encoder.copy_(same / static_cast<double>(fronts));
    decoder.copy_(same.t());
  }

  int64_t first_frames() const override { return 1024; }

 private:
  ToneBank bank_;
};

}  // namespace

std::shared_ptr<const SoundFront> make_front(const SoundStreamConfig& config) {
  if (config.front == "lapped") return std::make_shared<LappedFront>(config);
  if (config.front == "tones") return std::make_shared<ToneFront>(config);
  return nullptr;
}

}  // namespace melete
