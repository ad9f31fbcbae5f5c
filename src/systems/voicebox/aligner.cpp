#include "systems/voicebox/aligner.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/autocast.h"
#include "core/base/error.h"
#include "core/device.h"
#include "systems/voicebox/masks.h"

namespace melete::voicebox {

namespace {

constexpr double kImpossible = -std::numeric_limits<float>::max();

torch::nn::Conv1d convolution(int64_t in, int64_t out, int64_t kernel) {
  return torch::nn::Conv1d(torch::nn::Conv1dOptions(in, out, kernel).padding(kernel / 2));
}

// One row. In float32, as sums of recorded reference paths are: ties depend on it.
void best_path(const float* scores, int64_t stride, int64_t frames, int64_t count, int64_t* durations) {
  std::vector<float> best(static_cast<size_t>(count), -std::numeric_limits<float>::infinity());
  std::vector<bool> stayed(static_cast<size_t>(frames * count), true);
  for (int64_t frame = 0; frame < frames; ++frame) {
    const float* row = scores + frame * stride;
    // From the last phoneme down, so that best[i - 1] is still that of the frame before.
    for (int64_t i = std::min(frame, count - 1); i >= 0; --i) {
      const auto at = static_cast<size_t>(i);
      float before = frame == 0 ? 0 : best[at];
      if (i > 0 && best[at - 1] > before) {
        before = best[at - 1];
        stayed[static_cast<size_t>(frame * count + i)] = false;
      }
      best[at] = before + row[i];
    }
  }
  int64_t i = count - 1;
  for (int64_t frame = frames - 1; frame >= 0; --frame) {
    ++durations[i];
    if (!stayed[static_cast<size_t>(frame * count + i)]) --i;
  }
}

// The same for all rows at once by operators: bits like those of best_path, without waiting for the device.
// scores [batch, frames, n] float32, lengths [batch] on its device
at::Tensor best_paths(const at::Tensor& scores, const at::Tensor& frame_lengths,
                      const at::Tensor& phoneme_lengths) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const int64_t batch = scores.size(0), frames = scores.size(1), n = scores.size(2);
  std::vector<at::Tensor> moved;  // bool [batch, n] of every frame but the first
  at::Tensor best = at::full({batch, n}, kNever, scores.options());
  best.select(1, 0).copy_(scores.select(1, 0).select(1, 0));
  for (int64_t frame = 1; frame < frames; ++frame) {
    const at::Tensor before = at::constant_pad_nd(best, {1, -1}, kNever);
    moved.push_back(before > best);
    best = at::where(moved.back(), before, best) + scores.select(1, frame);
  }
  at::Tensor place = (phoneme_lengths - 1).unsqueeze(1);
  at::Tensor durations = at::zeros({batch, n}, place.options());
  for (int64_t frame = frames - 1; frame >= 0; --frame) {
    const at::Tensor there = (frame_lengths > frame).unsqueeze(1);
    durations.scatter_add_(1, place, there.to(at::kLong));
    if (frame == 0) break;
    const at::Tensor came = moved[static_cast<size_t>(frame - 1)].gather(1, place).logical_and(there);
    place = place - came.to(at::kLong);
  }
  return durations;
}

}  // namespace

void describe(Schema& s, AlignerConfig& c) {
  s.option("phonemes", c.phonemes, "that there are; 0: their embeddings are given").at_least(0);
  s.option("phoneme_dim", c.phoneme_dim, "of their embeddings").at_least(1);
  s.option("frame_dim", c.frame_dim, "values of a frame; 0: as many as the frames have").at_least(0);
  s.option("attention_dim", c.attention_dim, "of the space in which they meet").at_least(1);
  s.option("phoneme_context", c.phoneme_context,
           "phonemes that are heard together, odd; with 1 boundaries are where sounds change")
      .at_least(1);
  s.option("temperature", c.temperature, "of a squared distance in it").at_least(0);
  s.option("blank", c.blank, "score of no phoneme in the forward-sum loss");
  s.option("prior", c.prior, "how firmly a straight diagonal is expected; 0: not at all").at_least(0);
  s.option("as_upstream", c.as_upstream, "naturalspeech2-pytorch's arithmetic, see docs/differences.md");
}

AlignerImpl::AlignerImpl(const AlignerConfig& config) : config_(config) {
  const int64_t keys = config.phoneme_dim, queries = config.frame_dim;
  require(config.phoneme_context % 2 == 1, "[aligner] expected an odd phoneme_context, got {}",
          config.phoneme_context);
  if (config.phonemes > 0)
    phoneme_embedding = register_module("phoneme_embedding", torch::nn::Embedding(config.phonemes, keys));
  key_input = register_module("key_input", convolution(keys, 2 * keys, config.phoneme_context));
  key_output = register_module("key_output", convolution(2 * keys, config.attention_dim, 1));
  query_input = register_module("query_input", convolution(queries, 2 * queries, 3));
  query_middle = register_module("query_middle", convolution(2 * queries, queries, 1));
  query_output = register_module("query_output", convolution(queries, config.attention_dim, 1));
}

at::Tensor AlignerImpl::scores(const at::Tensor& frames, const at::Tensor& embeddings) {
  const at::Tensor keys =
      in_float(key_output(at::relu(key_input(embeddings.transpose(1, 2))))).transpose(1, 2);
  const at::Tensor hidden = at::relu(query_middle(at::relu(query_input(frames.transpose(1, 2)))));
  const at::Tensor queries = in_float(query_output(hidden)).transpose(1, 2);
  // Distances are small differences of large numbers: never in bf16.
  const AutocastScope float32(frames.device().type(), false);
  if (config_.as_upstream) return at::cdist(queries.contiguous(), keys.contiguous());
  // |q - k|^2 without the space of all differences
  const at::Tensor squared = queries.square().sum(-1, true) + keys.square().sum(-1).unsqueeze(1) -
                             2 * at::matmul(queries, keys.transpose(1, 2));
  return -config_.temperature * squared.clamp_min(0);
}

Alignment AlignerImpl::forward(const AlignerInput& given, double prior_share) {
  require(given.embeddings.defined() || !phoneme_embedding.is_empty(),
          "[aligner] this one has no phonemes of its own, so their embeddings must be given");
  // Padding must not reach real phonemes and frames through the convolutions.
  const int64_t frames = given.frames.size(1);
  at::Tensor embeddings =
      given.embeddings.defined() ? given.embeddings : phoneme_embedding(given.phonemes.clamp_min(0));
  at::Tensor mel = given.frames;
  const int64_t n = embeddings.size(1);
  const at::Tensor frame_lengths = sent_to(mel.device(), given.frame_lengths),
                   phoneme_lengths = sent_to(mel.device(), given.phoneme_lengths);
  const at::Tensor there = first_frames(phoneme_lengths, n);
  if (!config_.as_upstream) {
    embeddings = embeddings.masked_fill(there.logical_not().unsqueeze(2), 0);
    mel = mel.masked_fill(first_frames(frame_lengths, frames).logical_not().unsqueeze(2), 0);
  }
  Alignment result;
  const at::Tensor absent = there.logical_not().unsqueeze(1);
  result.scores = scores(mel, embeddings).masked_fill(absent, kImpossible);
  if (!config_.as_upstream) {
    result.scores = result.scores.log_softmax(-1);
    if (config_.prior > 0 && prior_share > 0)
      result.scores = result.scores +
                      prior_share * diagonal_prior(frame_lengths, phoneme_lengths, frames, n, config_.prior);
    result.scores = result.scores.masked_fill(absent, kImpossible);
  }
  result.soft = result.scores.softmax(-1);
  const at::Tensor value = config_.as_upstream ? result.soft : result.scores.log_softmax(-1);
  result.durations = monotonic_durations(value.detach(), given.frame_lengths, given.phoneme_lengths);
  result.hard = path_of_durations(result.durations, frames);
  return result;
}

at::Tensor monotonic_durations(const at::Tensor& scores, const at::Tensor& frame_lengths,
                               const at::Tensor& phoneme_lengths) {
  const at::Tensor values = scores.to(at::kFloat).contiguous();
  if (!values.device().is_cpu())
    return best_paths(values, sent_to(values.device(), frame_lengths.to(at::kLong)),
                      sent_to(values.device(), phoneme_lengths.to(at::kLong)));
  const at::Tensor frames = frame_lengths.to(at::kCPU, at::kLong),
                   counts = phoneme_lengths.to(at::kCPU, at::kLong);
  const at::Tensor durations = at::zeros({values.size(0), values.size(2)}, at::kLong);
  for (int64_t row = 0; row < values.size(0); ++row) {
    const auto used = frames[row].item<int64_t>(), count = counts[row].item<int64_t>();
    require(used <= values.size(1) && count <= values.size(2) && count >= 1,
            "[aligner] row {} has {} frames and {} phonemes, its scores {} and {}", row, used, count,
            values.size(1), values.size(2));
    best_path(values[row].data_ptr<float>(), values.size(2), used, count, durations[row].data_ptr<int64_t>());
  }
  return durations;
}

at::Tensor path_of_durations(const at::Tensor& durations, int64_t frames) {
  const at::Tensor ends = durations.cumsum(1).unsqueeze(1);  // [batch, 1, n]
  const at::Tensor times = at::arange(frames, durations.options()).view({1, frames, 1});
  return at::logical_and(times < ends, times >= ends - durations.unsqueeze(1));
}

at::Tensor diagonal_prior(const at::Tensor& frame_lengths, const at::Tensor& phoneme_lengths, int64_t frames,
                          int64_t n, double firmness) {
  const auto options = frame_lengths.options().dtype(at::kDouble);
  const auto rows = [](const at::Tensor& lengths) { return lengths.to(at::kDouble).view({-1, 1, 1}); };
  const at::Tensor total = rows(frame_lengths), last = (rows(phoneme_lengths) - 1).clamp_min(0);
  const at::Tensor step = at::minimum(at::arange(1, frames + 1, options).view({1, -1, 1}), total);
  const at::Tensor k = at::minimum(at::arange(n, options).view({1, 1, -1}), last);
  const at::Tensor a = firmness * step, b = firmness * (total + 1 - step);
  const auto log_beta = [](const at::Tensor& x, const at::Tensor& y) {
    return at::lgamma(x) + at::lgamma(y) - at::lgamma(x + y);
  };
  const at::Tensor choose = at::lgamma(last + 1) - at::lgamma(k + 1) - at::lgamma(last - k + 1);
  return (choose + log_beta(k + a, last - k + b) - log_beta(a, b)).to(at::kFloat);
}

at::Tensor forward_sum_loss(const at::Tensor& scores, const at::Tensor& frame_lengths,
                            const at::Tensor& phoneme_lengths, double blank) {
  const int64_t batch = scores.size(0), n = scores.size(2);
  // CTC's symbols are the phonemes' places, each once; symbol 0 is the blank.
  const at::Tensor symbols =
      at::constant_pad_nd(scores, {1, 0}, blank).transpose(0, 1);  // [frames, batch, n + 1]
  const at::Tensor counts = sent_to(scores.device(), phoneme_lengths);
  const at::Tensor there = at::arange(n + 1, counts.options()).unsqueeze(0) <= counts.unsqueeze(1);
  const at::Tensor logarithms = symbols.masked_fill(there.logical_not(), kImpossible).log_softmax(-1);
  const at::Tensor targets = at::arange(1, n + 1, counts.options()).expand({batch, n}).contiguous();
  const at::Tensor input_lengths = frame_lengths.to(at::kCPU, at::kLong).contiguous(),
                   target_lengths = phoneme_lengths.to(at::kCPU, at::kLong).contiguous();
  if (scores.device().is_cpu())
    return at::ctc_loss(logarithms, targets, input_lengths, target_lengths, 0, at::Reduction::Mean, true);
  // The same mean; its own sends lengths to the device, after LibTorch 2.6 targets to the host, and waits.
  const auto numbers = [&](const at::Tensor& lengths) {
    return at::IntArrayRef(lengths.data_ptr<int64_t>(), static_cast<size_t>(batch));
  };
  const at::Tensor each = std::get<0>(
      at::_ctc_loss(logarithms, targets, numbers(input_lengths), numbers(target_lengths), 0, true));
  return (each.masked_fill(each.isinf(), 0) / counts.clamp_min(1)).mean();
}

at::Tensor binarisation_loss(const Alignment& alignment) {
  const at::Tensor logarithms = alignment.scores.log_softmax(-1);
  if (logarithms.device().is_cpu()) return -logarithms.masked_select(alignment.hard).mean();
  // Elsewhere nobody knows how many there are without waiting.
  return -logarithms.masked_fill(alignment.hard.logical_not(), 0).sum() / alignment.hard.sum();
}

at::Tensor binarisation_loss_as_upstream(const Alignment& alignment) {
  const at::Tensor logarithms = alignment.scores.log_softmax(-1);
  return logarithms.masked_select(alignment.hard).sum() / alignment.scores.size(0);
}

}  // namespace melete::voicebox
