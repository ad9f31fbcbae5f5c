#include "pretrained/encodec.h"

#include <fmt/ranges.h>

#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "nn/frozen.h"
#include "nn/identity.h"

namespace melete {

namespace {

constexpr int64_t kNoPadding[] = {0};

// Reflection needs more samples than it adds; a shorter signal is lengthened by zeros for the time of it.
at::Tensor pad_time(const at::Tensor& x, int64_t left, int64_t right, const std::string& mode) {
  const int64_t both[] = {left, right};
  if (mode != "reflect") return at::constant_pad_nd(x, both);
  const int64_t short_by = std::max<int64_t>(0, std::max(left, right) - x.size(-1) + 1);
  const int64_t extra[] = {0, short_by};
  const at::Tensor padded = at::reflection_pad1d(short_by > 0 ? at::constant_pad_nd(x, extra) : x, both);
  return padded.narrow(-1, 0, padded.size(-1) - short_by);
}

at::Tensor norm_over_all(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return weight.defined() ? at::group_norm(x.contiguous(), 1, weight, bias) : x;
}

}  // namespace

int64_t EncodecConfig::samples_per_frame() const {
  return std::accumulate(ratios.begin(), ratios.end(), int64_t{1}, std::multiplies<>());
}

int64_t EncodecConfig::quantizers_for(double kbit_per_second) const {
  if (kbit_per_second <= 0) return codebooks;
  const auto frame_rate =
      std::ceil(static_cast<double>(sample_rate_hz) / static_cast<double>(samples_per_frame()));
  const double bits = std::log2(static_cast<double>(codebook_size)) * frame_rate;
  const auto wanted = static_cast<int64_t>(std::max(1.0, std::floor(kbit_per_second * 1000 / bits)));
  return std::min(wanted, codebooks);
}

void describe(Schema& schema, EncodecConfig& config) {
  schema.option("sample_rate_hz", config.sample_rate_hz, "of the audio").at_least(1).unit("Hz");
  schema.option("input_channels", config.input_channels, "of the audio").at_least(1);
  schema.option("dim", config.dim, "of the vectors that are quantized").at_least(1);
  schema.option("filters", config.filters, "channels of the first convolution").at_least(1);
  schema.option("residual_layers", config.residual_layers, "residual units a block").at_least(0);
  schema.option("ratios", config.ratios, "strides of the decoder, the encoder's backwards").at_least(1);
  schema.option("kernel", config.kernel, "of the first convolutions").at_least(1).unit("frames");
  schema.option("last_kernel", config.last_kernel, "of the last convolutions").at_least(1).unit("frames");
  schema.option("residual_kernel", config.residual_kernel, "in residual units").at_least(1).unit("frames");
  schema.option("dilation_base", config.dilation_base, "residual unit j dilates by its j-th power")
      .at_least(1);
  schema.option("compress", config.compress, "residual units are this many times narrower inside")
      .at_least(1);
  schema.option("lstm_layers", config.lstm_layers, "on each side; 0: none").at_least(0);
  schema.option("causal", config.causal, "see only the past");
  schema.option("group_norm", config.group_norm, "normalise over time and channels after convolutions");
  schema.option("shortcut_convolution", config.shortcut_convolution, "in residual units");
  schema.option("pad_mode", config.pad_mode, "what stands before the first sample")
      .one_of({"reflect", "constant"});
  schema.option("trim_right_ratio", config.trim_right_ratio, "of a causal transposed convolution's overhang")
      .at_least(0)
      .at_most(1);
  schema.option("codebooks", config.codebooks, "that the weights hold").at_least(1);
  schema.option("codebook_size", config.codebook_size, "codes of each").at_least(2);
  schema.option("quantizers", config.quantizers, "codebooks that are used").at_least(1);
}

EncodecConvImpl::EncodecConvImpl(const EncodecConfig& config, int64_t in, int64_t out, int64_t kernel,
                                 int64_t stride, int64_t dilation)
    : config_(config), kernel_(kernel), stride_(stride), dilation_(dilation) {
  convolution = CausalConv1d(in, out, kernel, config.pad_mode, stride, dilation);
  register_module("convolution", convolution);
  if (!config.group_norm) return;
  norm_weight = register_parameter("norm_weight", at::ones({out}));
  norm_bias = register_parameter("norm_bias", at::zeros({out}));
}

at::Tensor EncodecConvImpl::forward(const at::Tensor& x) {
  const int64_t time = x.size(-1), padding = (kernel_ - 1) * dilation_ + 1 - stride_;
  const int64_t unfinished = (stride_ - time % stride_) % stride_;  // samples that the last frame lacks
  at::Tensor y;
  if (config_.causal && (config_.pad_mode != "reflect" || time > std::max(padding, unfinished))) {
    y = convolution(unfinished > 0 ? pad_time(x, 0, unfinished, config_.pad_mode) : x);
  } else {
    const int64_t right = config_.causal ? 0 : padding / 2;
    const at::Tensor padded = pad_time(x, padding - right, right + unfinished, config_.pad_mode);
    const at::IntArrayRef no_padding(kNoPadding);
    y = at::conv1d(padded, convolution->weight, convolution->bias, stride_, no_padding, dilation_);
  }
  return norm_over_all(y, norm_weight, norm_bias);
}

EncodecConvTransposeImpl::EncodecConvTransposeImpl(const EncodecConfig& config, int64_t in, int64_t out,
                                                   int64_t stride)
    : config_(config), stride_(stride) {
  convolution = CausalConvTranspose1d(in, out, 2 * stride, stride);
  register_module("convolution", convolution);
  if (!config.group_norm) return;
  norm_weight = register_parameter("norm_weight", at::ones({out}));
  norm_bias = register_parameter("norm_bias", at::zeros({out}));
}

at::Tensor EncodecConvTransposeImpl::forward(const at::Tensor& x) {
  // The norm sees the overhang too, so only without it can the overhang be left uncomputed.
  if (config_.causal && config_.trim_right_ratio == 1 && !config_.group_norm) return convolution(x);
  const at::Tensor whole = norm_over_all(
      at::conv_transpose1d(x, convolution->weight, convolution->bias, stride_), norm_weight, norm_bias);
  const double overhang = static_cast<double>(stride_);
  const auto right =
      config_.causal ? static_cast<int64_t>(std::ceil(overhang * config_.trim_right_ratio)) : stride_ / 2;
  return whole.narrow(-1, stride_ - right, x.size(-1) * stride_);
}

EncodecUnitImpl::EncodecUnitImpl(const EncodecConfig& config, int64_t channels, int64_t dilation) {
  const int64_t inner = channels / config.compress;
  first = register_module("first", EncodecConv(config, channels, inner, config.residual_kernel, 1, dilation));
  second = register_module("second", EncodecConv(config, inner, channels, 1));
  if (config.shortcut_convolution)
    shortcut = register_module("shortcut", EncodecConv(config, channels, channels, 1));
}

at::Tensor EncodecUnitImpl::forward(const at::Tensor& x) {
  const at::Tensor y = second(at::elu(first(at::elu(x))));
  return (shortcut.is_empty() ? x : shortcut(x)) + y;
}

EncodecLstmImpl::EncodecLstmImpl(int64_t channels, int64_t layers) : layers_(layers), channels_(channels) {
  const double bound = 1 / std::sqrt(static_cast<double>(channels));
  for (int64_t layer = 0; layer < layers; ++layer)
    for (const char* name : {"input_weight", "state_weight", "input_bias", "state_bias"}) {
      const bool bias = std::string(name).ends_with("bias");
      at::Tensor value = bias ? at::empty({4 * channels}) : at::empty({4 * channels, channels});
      weights_.push_back(
          register_parameter(fmt::format("{}_{}", name, layer), value.uniform_(-bound, bound)));
    }
}

at::Tensor EncodecLstmImpl::forward(const at::Tensor& x) {
  const at::Tensor steps = x.permute({2, 0, 1}).contiguous();  // [time, batch, channels]
  const at::Tensor start = at::zeros({layers_, x.size(0), channels_}, x.options());
  const auto [y, h, c] =
      at::lstm(steps, {start, start}, weights_, /*has_biases=*/true, layers_, /*dropout=*/0,
               /*train=*/false, /*bidirectional=*/false, /*batch_first=*/false);
  return (y + steps).permute({1, 2, 0});
}

EncodecBlockImpl::EncodecBlockImpl(const EncodecConfig& config, Direction direction, int64_t in,
                                   int64_t ratio) {
  const int64_t unit_channels = direction == Direction::down ? in : in / 2;
  int64_t dilation = 1;
  for (int64_t i = 0; i < config.residual_layers; ++i, dilation *= config.dilation_base)
    units->push_back(EncodecUnit(config, unit_channels, dilation));
  register_module("units", units);
  if (direction == Direction::down)
    down = register_module("down", EncodecConv(config, in, 2 * in, 2 * ratio, ratio));
  else
    up = register_module("up", EncodecConvTranspose(config, in, in / 2, ratio));
}

at::Tensor EncodecBlockImpl::forward(at::Tensor x) {
  if (!up.is_empty()) x = up(at::elu(x));
  for (const auto& unit : *units) x = unit->as<EncodecUnitImpl>()->forward(x);
  return down.is_empty() ? x : down(at::elu(x));
}

EncodecImpl::EncodecImpl(const EncodecConfig& config) : config_(config) {
  require(config.quantizers <= config.codebooks, "[encodec] {} quantizers are wanted, the weights hold {}",
          config.quantizers, config.codebooks);
  int64_t width = config.filters;
  encoder_input =
      register_module("encoder_input", EncodecConv(config, config.input_channels, width, config.kernel));
  for (auto ratio = config.ratios.rbegin(); ratio != config.ratios.rend(); ++ratio, width *= 2)
    encoder_blocks->push_back(EncodecBlock(config, EncodecBlockImpl::Direction::down, width, *ratio));
  register_module("encoder_blocks", encoder_blocks);
  if (config.lstm_layers > 0)
    encoder_lstm = register_module("encoder_lstm", EncodecLstm(width, config.lstm_layers));
  encoder_output =
      register_module("encoder_output", EncodecConv(config, width, config.dim, config.last_kernel));

  decoder_input = register_module("decoder_input", EncodecConv(config, config.dim, width, config.kernel));
  if (config.lstm_layers > 0)
    decoder_lstm = register_module("decoder_lstm", EncodecLstm(width, config.lstm_layers));
  for (const int64_t ratio : config.ratios) {
    decoder_blocks->push_back(EncodecBlock(config, EncodecBlockImpl::Direction::up, width, ratio));
    width /= 2;
  }
  register_module("decoder_blocks", decoder_blocks);
  decoder_output = register_module("decoder_output",
                                   EncodecConv(config, width, config.input_channels, config.last_kernel));
  codebooks = register_buffer("codebooks", at::randn({config.codebooks, config.codebook_size, config.dim}));
}

at::Tensor EncodecImpl::encode(const at::Tensor& wave) {
  at::Tensor x = encoder_input(wave);
  for (const auto& block : *encoder_blocks) x = block->as<EncodecBlockImpl>()->forward(x);
  if (!encoder_lstm.is_empty()) x = encoder_lstm(x);
  return encoder_output(at::elu(x));
}

at::Tensor EncodecImpl::quantize(const at::Tensor& encoded) const {
  at::Tensor rest = encoded.transpose(1, 2);  // [batch, frames, dim]
  std::vector<at::Tensor> codes;
  for (int64_t i = 0; i < config_.quantizers; ++i) {
    const at::Tensor book = codebooks[i];
    const at::Tensor distance = book.square().sum(1) - 2 * at::matmul(rest, book.t());
    codes.push_back(distance.argmin(-1));
    rest = rest - at::embedding(book, codes.back());
  }
  return at::stack(codes, -1);
}

at::Tensor EncodecImpl::vectors(const at::Tensor& codes) const {
  at::Tensor sum = at::embedding(codebooks[0], codes.select(-1, 0));
  for (int64_t i = 1; i < codes.size(-1); ++i) sum = sum + at::embedding(codebooks[i], codes.select(-1, i));
  return sum;
}

at::Tensor EncodecImpl::decode(const at::Tensor& frames) {
  at::Tensor x = decoder_input(frames.transpose(1, 2));
  if (!decoder_lstm.is_empty()) x = decoder_lstm(x);
  for (const auto& block : *decoder_blocks) x = block->as<EncodecBlockImpl>()->forward(x);
  return decoder_output(at::elu(x));
}

EncodecCodec::EncodecCodec(Encodec model) : model_(std::move(model)) {
  EncodecConfig config = model_->config();
  require(config.input_channels == 1,
          "[encodec] expected a model of one channel, got one of {}; the 24 kHz model has one",
          config.input_channels);
  freeze(*model_);
  identity_ = identity_of_model(kind(), config, tensors_of(*model_));
}

at::Tensor EncodecCodec::encode(const at::Tensor& audio) const {
  require(audio.dim() == 2 && audio.size(1) > 0, "[encodec] expected audio [batch, samples], got [{}]",
          fmt::join(audio.sizes(), ", "));
  const at::Tensor wave = audio.to(device_of(*model_));
  const FrozenScope frozen(wave);
  return model_->quantize(model_->encode(wave.unsqueeze(1))).to(audio.device());
}

at::Tensor EncodecCodec::decode(const at::Tensor& codes) const {
  require(codes.dim() == 3 && codes.size(2) >= 1 && codes.size(2) <= model_->config().codebooks,
          "[encodec] expected codes [batch, frames, 1 .. {}], got [{}]", model_->config().codebooks,
          fmt::join(codes.sizes(), ", "));
  const at::Tensor here = codes.to(device_of(*model_), at::kLong);
  const FrozenScope frozen(here);
  return model_->decode(model_->vectors(here)).squeeze(1).to(codes.device());
}

}  // namespace melete
