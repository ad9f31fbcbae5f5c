#include "systems/soundstream/pieces.h"

#include <algorithm>

#include "core/base/error.h"
#include "nn/frozen.h"

namespace melete {

namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Samples before a frame that its vector depends on.
int64_t encoder_reach(const SoundStreamConfig& config) {
  int64_t rate = config.front_samples();
  int64_t reach = 6 * rate;  // the first convolution has seven taps
  if (config.front == "tones") reach += config.tone_bank().reach();
  const auto& dilations = config.encoder_dilations;
  for (const int64_t stride : config.strides) {
    for (size_t i = 0; i < 3; ++i) reach += 6 * dilations[i % dilations.size()] * rate;
    reach += 2 * stride * rate;
    rate *= stride;
  }
  return reach + 2 * rate;
}

int64_t decoder_reach(const SoundStreamConfig& config) {
  int64_t rate = config.front_samples();
  int64_t reach = 7 * rate;  // from the end, where the last convolution has seven taps and frames may overlap
  const auto& dilations = config.decoder_dilations;
  for (const int64_t stride : config.strides) {
    for (size_t i = 0; i < 3; ++i) reach += 6 * dilations[i % dilations.size()] * rate;
    rate *= stride;
    reach += 2 * rate;
  }
  return reach + 6 * rate;
}

at::Tensor no_codes(const SoundStreamConfig& config) {
  return at::empty({0, config.quantizer.groups, config.quantizer.quantizers * config.quantizer.codebooks},
                   at::kLong);
}

}  // namespace

PieceLayout piece_layout(const SoundStreamConfig& config, double seconds) {
  const int64_t frame = config.samples_per_frame();
  const int64_t window = config.attention ? config.attention_window : 1;
  const int64_t seen = config.attention ? config.attention_window * config.attention_depth : 0;
  const int64_t encode_reach = encoder_reach(config) / frame + 1,
                decode_reach = decoder_reach(config) / frame + 1;
  PieceLayout layout;
  // As audiolm-pytorch it mirrors in its strided convolutions whatever pad_mode says.
  const bool mirrors = config.pad_mode == "reflect" || config.as_audiolm_pytorch;
  const bool circles = config.pad_mode == "circular";  // its beginning needs its end
  if (mirrors || circles) layout.least_frames = std::max(encode_reach, decode_reach) + 1;
  if (config.gate_loop || config.squeeze_excite || circles) return layout;
  const auto wanted = static_cast<int64_t>(seconds * static_cast<double>(config.sample_rate_hz)) / frame;
  layout.piece_frames = round_up(std::max(wanted, layout.least_frames), window);
  layout.encode_context = round_up(encode_reach + seen, window);
  layout.decode_context = round_up(decode_reach + seen, window);
  return layout;
}

PieceEncoder::PieceEncoder(SoundStream model, const PieceLayout& layout)
    : model_(std::move(model)), layout_(layout), frame_samples_(model_->samples_per_frame()) {
  require(model_->config().input_channels == 1,
          "[codec] only mono codecs can work in pieces, this one has {} "
          "channels",
          model_->config().input_channels);
}

at::Tensor PieceEncoder::push(std::span<const float> samples) {
  held_.insert(held_.end(), samples.begin(), samples.end());
  any_ = any_ || !samples.empty();
  std::vector<at::Tensor> made;
  const int64_t ahead = model_->config().look_ahead();
  while (layout_.piece_frames > 0 && held_begin_ * frame_samples_ + static_cast<int64_t>(held_.size()) >=
                                         (done_ + layout_.piece_frames) * frame_samples_ + ahead)
    made.push_back(run(layout_.piece_frames));
  return made.empty() ? no_codes(model_->config()) : at::cat(made);
}

at::Tensor PieceEncoder::finish() {
  int64_t whole = round_up(static_cast<int64_t>(held_.size()), frame_samples_);
  if (any_ && done_ == 0) whole = std::max(whole, layout_.least_frames * frame_samples_);
  held_.resize(static_cast<size_t>(whole), 0.0f);
  const int64_t left = held_begin_ + static_cast<int64_t>(held_.size()) / frame_samples_ - done_;
  return left > 0 ? run(left) : no_codes(model_->config());
}

at::Tensor PieceEncoder::run(int64_t frames) {
  const at::NoGradGuard no_grad;
  const int64_t from_here = done_ - held_begin_, all = from_here + frames;
  // At the end of the sound silence follows.
  const int64_t look_ahead = model_->config().look_ahead();
  const int64_t ahead =
      all * frame_samples_ + look_ahead <= static_cast<int64_t>(held_.size()) ? look_ahead : 0;
  const at::Tensor wave =
      at::from_blob(held_.data(), {1, 1, all * frame_samples_ + ahead}, at::kFloat).to(device_of(*model_));
  const at::Tensor vectors = model_->encode(wave, {}, ahead).narrow(1, from_here, frames);
  const at::Tensor codes = model_->quantizer->forward(vectors.contiguous(), nullptr).codes.to(at::kCPU);
  done_ += frames;
  const int64_t begin = std::max(held_begin_, done_ - layout_.encode_context);
  held_.erase(held_.begin(), held_.begin() + (begin - held_begin_) * frame_samples_);
  held_begin_ = begin;
  return codes.squeeze(1).transpose(0, 1).contiguous();  // from [groups, 1, frames, quantizers]
}

PieceDecoder::PieceDecoder(SoundStream model, const PieceLayout& layout)
    : model_(std::move(model)), layout_(layout) {}

std::vector<float> PieceDecoder::push(const at::Tensor& codes) {
  held_ = held_.defined() ? at::cat({held_, codes}) : codes;
  std::vector<float> made;
  while (layout_.piece_frames > 0 && held_begin_ + held_.size(0) >= done_ + layout_.piece_frames) {
    const std::vector<float> piece = run(layout_.piece_frames);
    made.insert(made.end(), piece.begin(), piece.end());
  }
  return made;
}

std::vector<float> PieceDecoder::finish() {
  const int64_t left = held_.defined() ? held_begin_ + held_.size(0) - done_ : 0;
  return left > 0 ? run(left) : std::vector<float>{};
}

std::vector<float> PieceDecoder::run(int64_t frames) {
  const at::NoGradGuard no_grad;
  const int64_t from_here = done_ - held_begin_, frame = model_->samples_per_frame();
  const at::Tensor codes =
      held_.narrow(0, 0, from_here + frames).transpose(0, 1).unsqueeze(1).to(device_of(*model_));
  const at::Tensor wave =
      model_->decode_codes(codes, nullptr, held_begin_).flatten().to(at::kCPU, at::kFloat).contiguous();
  const float* begin = wave.data_ptr<float>() + from_here * frame;
  std::vector<float> samples(begin, begin + frames * frame);
  done_ += frames;
  const int64_t kept = std::max(held_begin_, done_ - layout_.decode_context);
  held_ = held_.narrow(0, kept - held_begin_, held_.size(0) - (kept - held_begin_)).clone();
  held_begin_ = kept;
  return samples;
}

}  // namespace melete
