#include "systems/soundstream/soundstream.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/device.h"
#include "io/base/resample.h"

namespace melete {

namespace {

constexpr double kBesideShortcut = 0.1;  // what the layers add to the shortcuts starts small

// x + elu(conv1x1(elu(dilated conv(x)))), the branch optionally gated by squeeze-excite
struct ResidualUnit : torch::nn::Module {
  ResidualUnit(const SoundStreamConfig& config, int64_t channels, int64_t dilation) {
    dilated = register_module("dilated", CausalConv1d(channels, channels, 7, config.pad_mode, 1, dilation));
    pointwise = register_module("pointwise", CausalConv1d(channels, channels, 1));
    const at::NoGradGuard no_grad;
    pointwise->weight.mul_(0.3);  // many units in a row must not make an untrained codec loud
    if (config.squeeze_excite)
      squeeze_excite = register_module("squeeze_excite", SqueezeExcite(channels, config.as_audiolm_pytorch));
  }

  at::Tensor forward(const at::Tensor& x, FrameHistory* history) {
    at::Tensor branch = pointwise(dilated(x, Activation::elu, history), Activation::elu);
    if (!squeeze_excite.is_empty()) branch = squeeze_excite(branch, history);
    return branch + x;
  }

  CausalConv1d dilated{nullptr}, pointwise{nullptr};
  SqueezeExcite squeeze_excite{nullptr};
};

LocalTransformer make_attention(const SoundStreamConfig& config) {
  LocalTransformerConfig attention;
  attention.dim = config.dim;
  attention.depth = config.attention_depth;
  attention.heads = config.attention_heads;
  attention.head_dim = config.attention_head_dim;
  attention.window = config.attention_window;
  attention.xpos_scale_base = config.attention_xpos_scale_base;
  attention.dynamic_position_bias = config.attention_position_bias;
  return LocalTransformer(attention);
}

}  // namespace

void describe(Schema& s, SoundStreamConfig& c) {
  s.option("sample_rate_hz", c.sample_rate_hz, "of the sound that is coded").at_least(1).unit("Hz");
  s.option("input_channels", c.input_channels, "1: mono").at_least(1);
  s.option("channels", c.channels, "after the first convolution").at_least(1);
  s.option("strides", c.strides, "of every encoder block; their product is the samples of a frame")
      .at_least(1);
  s.option("channel_multiples", c.channel_multiples, "channels after every block, times `channels`")
      .at_least(1);
  s.option("dim", c.dim, "channels of the vectors that are quantized").at_least(1);
  s.option("encoder_dilations", c.encoder_dilations, "of the three residual units, repeated in turn")
      .at_least(1);
  s.option("decoder_dilations", c.decoder_dilations, "of the three residual units, repeated in turn")
      .at_least(1);
  s.option("pad_mode", c.pad_mode, "what comes before the first sample")
      .one_of({"reflect", "constant", "replicate", "circular"});
  s.option("squeeze_excite", c.squeeze_excite, "gate every residual unit by a running mean");
  s.option("gate_loop", c.gate_loop, "a linear recurrence after every block");
  s.option("attention", c.attention, "local attention before and after the quantizer");
  s.option("attention_window", c.attention_window, "how far back it sees").at_least(1).unit("frames");
  s.option("attention_heads", c.attention_heads, "of that attention").at_least(1);
  s.option("attention_head_dim", c.attention_head_dim, "channels of a head").at_least(2);
  s.option("attention_depth", c.attention_depth, "layers of it").at_least(1);
  s.option("attention_xpos_scale_base", c.attention_xpos_scale_base, "xpos decay; 0: half the window")
      .at_least(0);
  s.option("attention_position_bias", c.attention_position_bias, "learned bias of the distance, not rotary");
  s.section("quantizer", c.quantizer, "between encoder and decoder");
  s.option("as_audiolm_pytorch", c.as_audiolm_pytorch,
           "audiolm-pytorch's arithmetic, see docs/differences.md");
  s.option(
       "code_order", c.code_order,
       "of a frame's codes where there are several groups: stage by stage, so that the first are coarse, or "
       "group by group")
      .one_of({"stages", "groups"});
  s.option("front", c.front,
           "convolutions over samples, over frames of a lapped transform, or over levels of tones and noise")
      .one_of({"wave", "lapped", "tones"});
  s.option("front_hop", c.front_hop, "lapped, tones: samples of such a frame; lapped: an even number")
      .at_least(2)
      .unit("samples");
  s.option("noise_from_hz", c.noise_from_hz,
           "lapped: from here on only the sizes of coefficients are coded, their signs are drawn; 0: nowhere")
      .at_least(0)
      .unit("Hz");
  s.option("lowest_note", c.lowest_note, "tones: MIDI's number of the lowest; 33 is A at 55 Hz")
      .at_least(0)
      .at_most(127);
  s.option("tones", c.tones, "tones: how many, a semitone apart").at_least(1);
  s.option("noise_bands", c.noise_bands, "tones: bands of noise beside them").at_least(1);
}

int64_t SoundStreamConfig::signed_coefficients() const {
  if (noise_from_hz <= 0) return front_hop;
  const double coefficient_hz = static_cast<double>(sample_rate_hz) / 2 / static_cast<double>(front_hop);
  return std::min(front_hop, static_cast<int64_t>(std::lround(noise_from_hz / coefficient_hz)));
}

int64_t SoundStreamConfig::samples_per_frame() const {
  return std::accumulate(strides.begin(), strides.end(), front_samples(), std::multiplies<>());
}

int64_t SoundStreamConfig::look_ahead() const {
  return front == "lapped" ? front_hop : front == "tones" ? tone_bank().reach() : 0;
}

CodecBlockImpl::CodecBlockImpl(const SoundStreamConfig& config, Direction direction, int64_t in, int64_t out,
                               int64_t stride)
    : doubled_residual_(config.as_audiolm_pytorch) {
  const bool is_down = direction == Direction::down;
  const auto& dilations = is_down ? config.encoder_dilations : config.decoder_dilations;
  if (!is_down) up = register_module("up", CausalConvTranspose1d(in, out, 2 * stride, stride));
  for (size_t i = 0; i < 3; ++i)
    units->push_back(
        std::make_shared<ResidualUnit>(config, is_down ? in : out, dilations[i % dilations.size()]));
  register_module("units", units);
  // audiolm-pytorch forgets to hand pad_mode to this convolution.
  const std::string pad_mode = config.as_audiolm_pytorch ? "reflect" : config.pad_mode;
  if (is_down) down = register_module("down", CausalConv1d(in, out, 2 * stride, pad_mode, stride));
  if (config.gate_loop) gate_loop = register_module("gate_loop", GateLoop(out));
}

at::Tensor CodecBlockImpl::forward(at::Tensor x, FrameHistory* history) {
  if (!up.is_empty()) x = up(x, history);
  for (const auto& unit : *units) x = unit->as<ResidualUnit>()->forward(x, history);
  if (!down.is_empty()) x = down(x, Activation::none, history);
  if (gate_loop.is_empty()) return x;
  const at::Tensor looped = gate_loop(x.transpose(1, 2), history).transpose(1, 2);
  return looped + (doubled_residual_ ? 2 * x : x);
}

SoundStreamImpl::SoundStreamImpl(const SoundStreamConfig& config) : config_(config) {
  require(config.strides.size() == config.channel_multiples.size(),
          "[soundstream] {} strides need as many channel_multiples, got {}", config.strides.size(),
          config.channel_multiples.size());
  std::vector<int64_t> widths{config.channels};
  for (const int64_t multiple : config.channel_multiples) widths.push_back(config.channels * multiple);

  front_ = make_front(config);
  const int64_t sound_in = config.input_channels * (front_ ? front_->seen() : 1);
  const int64_t sound_out = config.input_channels * (front_ ? front_->values() : 1);
  encoder_input =
      register_module("encoder_input", CausalConv1d(sound_in, config.channels, 7, config.pad_mode));
  for (size_t i = 0; i < config.strides.size(); ++i)
    encoder_blocks->push_back(
        CodecBlock(config, CodecBlockImpl::Direction::down, widths[i], widths[i + 1], config.strides[i]));
  register_module("encoder_blocks", encoder_blocks);
  encoder_output =
      register_module("encoder_output", CausalConv1d(widths.back(), config.dim, 3, config.pad_mode));
  if (config.attention) encoder_attention = register_module("encoder_attention", make_attention(config));
  encoder_film = register_module("encoder_film", Film(config.dim, 2));

  quantizer = register_module("quantizer", Quantizer(config.quantizer, config.dim));

  decoder_film = register_module("decoder_film", Film(config.dim, 2));
  if (config.attention) decoder_attention = register_module("decoder_attention", make_attention(config));
  decoder_input =
      register_module("decoder_input", CausalConv1d(config.dim, widths.back(), 7, config.pad_mode));
  for (size_t i = config.strides.size(); i-- > 0;)
    decoder_blocks->push_back(
        CodecBlock(config, CodecBlockImpl::Direction::up, widths[i + 1], widths[i], config.strides[i]));
  register_module("decoder_blocks", decoder_blocks);
  decoder_output =
      register_module("decoder_output", CausalConv1d(config.channels, sound_out, 7, config.pad_mode));
  if (!front_) return;
  const int64_t around = config.samples_per_frame() / config.front_samples() * sound_out;
  const auto shortcut = [&](const char* name, int64_t from, int64_t to) {
    return register_module(name, torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false)));
  };
  encoder_shortcut = shortcut("encoder_shortcut", around, config.dim);
  decoder_shortcut = shortcut("decoder_shortcut", config.dim, around);
  const at::NoGradGuard no_grad;
  front_->start_shortcuts(encoder_shortcut->weight, decoder_shortcut->weight, config.input_channels);
  encoder_output->weight.mul_(kBesideShortcut);
  decoder_output->weight.mul_(kBesideShortcut);
}

SoundFront::Frames SoundStreamImpl::front_frames(const at::Tensor& wave, int64_t ahead,
                                                 FrameHistory* history) const {
  const int64_t batch = wave.size(0), channels = wave.size(1);
  // What the front keeps of a sound on its way in stands under the first layer that reads of it alone.
  at::Tensor* before = history != nullptr ? &history->of(*encoder_shortcut) : nullptr;
  const auto [values, seen] = front_->analyse(wave.flatten(0, 1), ahead, before);
  // [batch * channels, frames, n] -> [batch, frames, channels * n]
  const auto side_by_side = [&](const at::Tensor& x) {
    return channels == 1 ? x : x.view({batch, channels, x.size(1), x.size(2)}).transpose(1, 2).flatten(2);
  };
  return {side_by_side(values), side_by_side(seen).transpose(1, 2)};
}

at::Tensor SoundStreamImpl::front_wave(const at::Tensor& values, FrameHistory* history, int64_t first) const {
  const int64_t batch = values.size(0), frames = values.size(1), channels = config_.input_channels;
  const at::Tensor rows = values.view({batch, frames, channels, -1}).transpose(1, 2).flatten(0, 1);
  at::Tensor* before = history != nullptr ? &history->of(*this) : nullptr;
  return front_->synthesise(rows, first, before).view({batch, channels, -1});
}

at::Tensor SoundStreamImpl::attend(LocalTransformer& attention, const at::Tensor& x,
                                   FrameHistory* history) const {
  if (history == nullptr) return attention(x);
  at::Tensor& before = history->of(*attention.get());  // [batch, frames from a border of windows on, dim]
  const at::Tensor all = before.defined() ? at::cat({before, x}, 1) : x;
  const int64_t window = config_.attention_window, seen = window * config_.attention_depth;
  const int64_t dropped = std::max<int64_t>(0, all.size(1) / window * window - seen);
  before = all.narrow(1, dropped, all.size(1) - dropped).clone();
  return attention(all).narrow(1, all.size(1) - x.size(1), x.size(1));
}

SoundStreamImpl::Output SoundStreamImpl::forward(const at::Tensor& wave, Draws* draws, bool update,
                                                 std::optional<bool> denoise) {
  Output output;
  output.encoded = encode(wave, denoise);
  output.quantized = quantizer->forward(output.encoded, draws, update);
  // In training any frame may come first, so that no number is learned by heart.
  const int64_t numbers = front_ && is_training() && draws != nullptr ? front_->first_frames() : 0;
  output.wave = decode(output.quantized.vectors, denoise, nullptr,
                       numbers > 0 ? draws->integer("first frame", 0, numbers) : 0);
  return output;
}

at::Tensor SoundStreamImpl::prepare(const at::Tensor& wave, int64_t rate_hz, bool cut_from_left) const {
  require(wave.dim() == 2 || (wave.dim() == 3 && wave.size(1) == config_.input_channels),
          "[soundstream] a wave must be [batch, samples] or [batch, {}, samples], got {} dimensions",
          config_.input_channels, wave.dim());
  at::Tensor x = wave.to(at::kFloat);
  if (rate_hz > 0 && rate_hz != config_.sample_rate_hz) {
    const Resampler resampler(static_cast<int>(rate_hz), static_cast<int>(config_.sample_rate_hz));
    std::vector<int64_t> shape = x.sizes().vec();
    const at::Tensor rows = x.reshape({-1, x.size(-1)}).cpu().contiguous();
    const int64_t samples = rows.size(1);
    shape.back() = resampler.output_frames(samples);
    at::Tensor resampled = at::empty({rows.size(0), shape.back()});
    for (int64_t i = 0; i < rows.size(0); ++i)
      resampler.run({rows[i].data_ptr<float>(), static_cast<size_t>(samples)}, 0, 0,
                    {resampled[i].data_ptr<float>(), static_cast<size_t>(shape.back())});
    x = resampled.reshape(shape).to(wave.device());
  }
  const int64_t frame = samples_per_frame(), kept = x.size(-1) / frame * frame;
  require(kept > 0, "[soundstream] a frame is {} samples, got only {}", frame, x.size(-1));
  x = x.narrow(-1, cut_from_left ? x.size(-1) - kept : 0, kept);
  return x.dim() == 2 ? x.unsqueeze(1) : x;
}

at::Tensor SoundStreamImpl::denoise_condition(bool denoise, const at::Tensor& like) const {
  return sent_to(like.device(), at::tensor({denoise ? 1.f : 0.f, denoise ? 0.f : 1.f}));
}

at::Tensor SoundStreamImpl::encode(const at::Tensor& wave, std::optional<bool> denoise, int64_t ahead,
                                   FrameHistory* history) {
  require(ahead == 0 || ahead == config_.look_ahead(), "[soundstream] expected 0 or {} samples ahead, got {}",
          config_.look_ahead(), ahead);
  SoundFront::Frames frames{{}, wave};
  if (front_) frames = front_frames(wave, ahead, history);
  at::Tensor x = frames.seen;
  x = encoder_input(x, Activation::none, history);
  for (const auto& block : *encoder_blocks) x = block->as<CodecBlockImpl>()->forward(x, history);
  x = encoder_output(x, Activation::none, history).transpose(1, 2);  // [batch, frames, dim], a view
  if (front_) x = x + encoder_shortcut(frames.values.reshape({x.size(0), x.size(1), -1}));
  if (!encoder_attention.is_empty()) x = attend(encoder_attention, x, history);
  if (denoise) x = encoder_film(x, denoise_condition(*denoise, x));
  return x;
}

at::Tensor SoundStreamImpl::decode(at::Tensor x, std::optional<bool> denoise, FrameHistory* history,
                                   int64_t first_frame) {
  if (history != nullptr) first_frame = std::exchange(history->frames, history->frames + x.size(1));
  if (denoise) x = decoder_film(x, denoise_condition(*denoise, x));
  if (!decoder_attention.is_empty()) x = attend(decoder_attention, x, history);
  const at::Tensor vectors = x;
  x = decoder_input(x.transpose(1, 2), Activation::none, history);
  for (const auto& block : *decoder_blocks) x = block->as<CodecBlockImpl>()->forward(x, history);
  x = decoder_output(x, Activation::none, history);
  if (!front_) return x;
  const at::Tensor values = x.transpose(1, 2);  // [batch, frames of the front, channels * values of one]
  return front_wave(values + decoder_shortcut(vectors).reshape(values.sizes()), history,
                    first_frame * (values.size(1) / vectors.size(1)));
}

at::Tensor SoundStreamImpl::tokenize(const at::Tensor& wave, int64_t rate_hz) {
  const at::NoGradGuard no_grad;
  const bool was_training = is_training();
  eval();
  const at::Tensor codes = quantizer->forward(encode(prepare(wave, rate_hz)), nullptr).codes;
  train(was_training);
  return codes;
}

at::Tensor SoundStreamImpl::decode_codes(const at::Tensor& codes, FrameHistory* history,
                                         int64_t first_frame) {
  const int64_t groups = config_.quantizer.groups;
  at::Tensor grouped = codes;
  if (codes.dim() == 3) {
    require(codes.size(2) % groups == 0, "[soundstream] {} codes a frame do not split into {} groups",
            codes.size(2), groups);
    grouped =
        codes.view({codes.size(0), codes.size(1), groups, codes.size(2) / groups}).permute({2, 0, 1, 3});
  }
  return decode(quantizer->decode(grouped.to(at::kLong)), {}, history, first_frame);
}

int64_t SoundStreamImpl::samples_per_frame() const {
  return config_.samples_per_frame();
}

double SoundStreamImpl::frames_per_second() const {
  return static_cast<double>(config_.sample_rate_hz) / static_cast<double>(samples_per_frame());
}

double SoundStreamImpl::bits_per_second() const {
  const double codes = static_cast<double>(config_.quantizer.codes_per_frame());
  return frames_per_second() * codes * std::log2(static_cast<double>(quantizer->codebook_size()));
}

}  // namespace melete
