#include "systems/musiclm/mulan_embedding.h"

#include <algorithm>
#include <cmath>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/text_tokenizer.h"
#include "io/resample_audio.h"
#include "nn/codebook.h"
#include "nn/frozen.h"
#include "nn/identity.h"

namespace melete::musiclm {

namespace {

constexpr size_t kWindowsAtOnce = 32;

// Windows of a batch of recordings, in order.
struct Windows {
  std::vector<at::Tensor> pieces;  // [samples of the piece]
  std::vector<int64_t> row;        // whose it is
};

Windows cut(const at::Tensor& audio, const std::vector<int64_t>& lengths, int64_t longest) {
  Windows windows;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i],
                  count = longest > 0 ? std::max<int64_t>(1, (length + longest - 1) / longest) : 1;
    for (int64_t k = 0; k < count; ++k) {
      windows.pieces.push_back(
          audio[static_cast<int64_t>(i)].slice(0, length * k / count, length * (k + 1) / count));
      windows.row.push_back(static_cast<int64_t>(i));
    }
  }
  return windows;
}

}  // namespace

MulanEmbedding::MulanEmbedding(Mulan model, std::shared_ptr<const TextTokenizer> tokenizer,
                               const EmbeddingOptions& options)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)), options_(options) {
  require(tokenizer_ != nullptr, "[mulan] the text tower needs the tokenizer that it was trained with");
  freeze(*model_);
  MulanConfig config = model_->config();
  identity_ = identity_of_model("mulan " + tokenizer_->identity(), config, tensors_of(*model_));
}

// Windows that are run at once: the memory of an hour is that of a minute.
at::Tensor MulanEmbedding::embed_windows(const std::vector<at::Tensor>& pieces) const {
  std::vector<at::Tensor> made;
  for (size_t first = 0; first < pieces.size(); first += kWindowsAtOnce) {
    const size_t end = std::min(first + kWindowsAtOnce, pieces.size());
    std::vector<int64_t> widths;
    for (size_t i = first; i < end; ++i) widths.push_back(pieces[i].size(0));
    const int64_t widest = *std::max_element(widths.begin(), widths.end());
    const bool equal = *std::min_element(widths.begin(), widths.end()) == widest;
    at::Tensor batch = at::zeros({static_cast<int64_t>(widths.size()), widest}, pieces[first].options());
    for (size_t i = first; i < end; ++i)
      batch[static_cast<int64_t>(i - first)].narrow(0, 0, widths[i - first]).copy_(pieces[i]);
    const AudioInput input{batch, equal ? at::Tensor() : at::tensor(widths, at::kLong)};
    made.push_back(model_->embed_audio(input).values);
  }
  return at::cat(made);
}

at::Tensor MulanEmbedding::embed_audio(const at::Tensor& audio, int64_t audio_rate_hz,
                                       const at::Tensor& lengths) const {
  require(audio.dim() == 2, "[mulan] expected audio [batch, samples], got {} dimensions", audio.dim());
  at::Tensor sound = resample_audio(audio, audio_rate_hz, rate_hz()).to(device_of(*model_));
  const FrozenScope frozen(sound);
  std::vector<int64_t> samples(static_cast<size_t>(audio.size(0)), sound.size(1));
  if (lengths.defined()) {
    const at::Tensor known = lengths.to(at::kCPU, at::kLong).contiguous();
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i] = std::min(sound.size(1),
                            (known.data_ptr<int64_t>()[i] * rate_hz() + audio_rate_hz - 1) / audio_rate_hz);
  }
  // Sound that is too short to be heard counts with the silence after it.
  const int64_t shortest = shortest_samples();
  if (sound.size(1) < shortest) sound = at::constant_pad_nd(sound, {0, shortest - sound.size(1)});
  for (int64_t& length : samples) length = std::max(length, shortest);
  auto longest = static_cast<int64_t>(std::llround(options_.window_seconds * static_cast<double>(rate_hz())));
  if (longest > 0) longest = std::max(longest, 2 * shortest);  // so that cut ones are not too short
  const Windows windows = cut(sound, samples, longest);
  const at::Tensor each = embed_windows(windows.pieces);
  if (each.size(0) == audio.size(0)) return each.to(audio.device());
  const at::Tensor rows = at::tensor(windows.row, each.options().dtype(at::kLong));
  return unit_vectors(at::zeros({audio.size(0), dim()}, each.options()).index_add_(0, rows, each))
      .to(audio.device());
}

double MulanEmbedding::scale() const {
  return model_->contrast->log_scale.detach().exp().mean().item<double>();
}

TextFit MulanEmbedding::fit(const std::string& text) const {
  const auto tokens = static_cast<int64_t>(tokenizer_->pieces(text).size());
  return {tokens == 0, tokens > model_->config().text.window};
}

at::Tensor MulanEmbedding::embed_text(const std::vector<std::string>& texts) const {
  const TextInput input = tokenize(*tokenizer_, texts, model_->config().text.window).input;
  const int64_t highest = input.ids.max().item<int64_t>(), vocabulary = model_->config().text.vocabulary;
  require(highest < vocabulary,
          "[mulan] the tokenizer gives id {}, the text tower has {}; try the tokenizer "
          "that it was trained with",
          highest, vocabulary);
  const auto device = device_of(*model_);
  const at::Tensor ids = input.ids.to(device);
  const FrozenScope frozen(ids);
  return model_->embed_text({ids, input.mask.to(device)}).values.to(at::kCPU);
}

}  // namespace melete::musiclm
