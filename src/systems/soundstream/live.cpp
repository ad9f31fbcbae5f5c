#include "systems/soundstream/live.h"

#include <algorithm>

#include "core/base/error.h"
#include "nn/frozen.h"
#include "systems/soundstream/pieces.h"

namespace melete {

namespace {

int64_t least_frames_of(const SoundStreamConfig& config) {
  require(
      config.pad_mode != "circular",
      "[codec] pad_mode = \"circular\" puts the end of a sound before its beginning: no live codec; work on "
      "whole files");
  return piece_layout(config, 0).least_frames;
}

}  // namespace

LiveEncoder::LiveEncoder(SoundStream model)
    : model_(std::move(model)),
      frame_samples_(model_->samples_per_frame()),
      look_ahead_(model_->config().look_ahead()),
      least_frames_(least_frames_of(model_->config())) {
  require(model_->config().input_channels == 1, "[codec] a live codec is mono, this one has {} channels",
          model_->config().input_channels);
}

at::Tensor LiveEncoder::push(std::span<const float> samples) {
  held_.insert(held_.end(), samples.begin(), samples.end());
  const int64_t known = (static_cast<int64_t>(held_.size()) - look_ahead_) / frame_samples_;
  return run(known >= (begun_ ? 1 : least_frames_) ? known : 0);
}

at::Tensor LiveEncoder::finish() {
  const auto left = static_cast<int64_t>(held_.size());
  int64_t frames = (left + frame_samples_ - 1) / frame_samples_;
  if (!begun_ && frames > 0) frames = std::max(frames, least_frames_);
  held_.resize(static_cast<size_t>(frames * frame_samples_ + look_ahead_), 0.0f);
  return run(frames);
}

at::Tensor LiveEncoder::run(int64_t frames) {
  const QuantizerConfig& quantizer = model_->config().quantizer;
  if (frames == 0)
    return at::empty({0, quantizer.groups, quantizer.quantizers * quantizer.codebooks}, at::kLong);
  const at::NoGradGuard no_grad;
  const int64_t samples = frames * frame_samples_;
  const at::Tensor wave =
      at::from_blob(held_.data(), {1, 1, samples + look_ahead_}, at::kFloat).to(device_of(*model_));
  const at::Tensor vectors = model_->encode(wave, {}, look_ahead_, &history_);
  const at::Tensor codes = model_->quantizer->forward(vectors.contiguous(), nullptr).codes.to(at::kCPU);
  held_.erase(held_.begin(), held_.begin() + samples);
  begun_ = true;
  return codes.squeeze(1).transpose(0, 1).contiguous();  // from [groups, 1, frames, quantizers]
}

LiveDecoder::LiveDecoder(SoundStream model)
    : model_(std::move(model)), least_frames_(least_frames_of(model_->config())) {}

std::vector<float> LiveDecoder::push(const at::Tensor& codes) {
  held_ = held_.defined() ? at::cat({held_, codes}) : codes;
  if (held_.size(0) < (begun_ ? 1 : least_frames_)) return {};
  return run();
}

// A sound of fewer than least_frames_ never comes from an encoder of the same codec.
std::vector<float> LiveDecoder::finish() {
  return held_.defined() && held_.size(0) > 0 ? run() : std::vector<float>{};
}

std::vector<float> LiveDecoder::run() {
  const at::NoGradGuard no_grad;
  // [groups, 1, frames, codes of a group]
  const at::Tensor codes = held_.transpose(0, 1).unsqueeze(1).to(device_of(*model_));
  const at::Tensor wave =
      model_->decode_codes(codes, &history_).flatten().to(at::kCPU, at::kFloat).contiguous();
  held_ = at::Tensor();
  begun_ = true;
  return {wave.data_ptr<float>(), wave.data_ptr<float>() + wave.numel()};
}

}  // namespace melete
