#include "systems/voicebox/phoneme_frames.h"

#include <algorithm>
#include <cstring>

namespace melete::voicebox {

namespace {

constexpr double kFloor = -9;   // of the logarithm of a band: below it is silence, whatever made it
constexpr double kQuiet = 4;    // 35 dB below the loudest band of a recording
constexpr int64_t kMargin = 2;  // frames of silence that stay

struct Span {
  int64_t begin = 0, end = 0;
};

// bands [frames, mels] -> the frames from the first to the last that sounds, and a margin
Span sounding(const at::Tensor& bands) {
  const at::Tensor level = bands.amax(1);
  const at::Tensor places =
      at::nonzero(level > level.max() - kQuiet).to(at::kCPU);  // [sounding, 1], in order
  return {std::max<int64_t>(places[0].item<int64_t>() - kMargin, 0),
          std::min<int64_t>(places[-1].item<int64_t>() + 1 + kMargin, bands.size(0))};
}

}  // namespace

at::Tensor kept_lexicon(const PhonemizerConfig& config) {
  if (config.lexicon_bytes.empty()) return {};
  at::Tensor kept = at::empty({static_cast<int64_t>(config.lexicon_bytes.size())}, at::kByte);
  std::memcpy(kept.data_ptr(), config.lexicon_bytes.data(), config.lexicon_bytes.size());
  return kept;
}

void take_lexicon(PhonemizerConfig& config, const TensorMap& tensors) {
  const auto found = tensors.find(kKeptLexicon);
  if (found == tensors.end()) return;
  const at::Tensor bytes = found->second.contiguous();
  config.lexicon_bytes.assign(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
}

at::Tensor ids_by_frame(const std::vector<int64_t>& ids, const std::vector<int64_t>& counts) {
  return at::repeat_interleave(at::tensor(ids, at::kLong), at::tensor(counts, at::kLong));
}

at::Tensor phonemes_in_the_middle(const at::Tensor& tokens, const at::Tensor& lengths, int64_t count) {
  const at::Tensor ids = tokens.to(at::kCPU).contiguous(), own = lengths.to(at::kCPU);
  at::Tensor chosen = at::zeros(ids.sizes(), at::kBool);
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const int64_t* id = ids[row].data_ptr<int64_t>();
    const auto length = own[row].item<int64_t>();
    std::vector<int64_t> begins;  // of the phonemes, and the end of the last
    for (int64_t i = 0; i < length; ++i)
      if (i == 0 || id[i] != id[i - 1]) begins.push_back(i);
    const auto phonemes = static_cast<int64_t>(begins.size());
    begins.push_back(length);
    const int64_t first = std::max<int64_t>(0, (phonemes - count) / 2);
    const int64_t begin = begins[static_cast<size_t>(first)];
    const int64_t end = begins[static_cast<size_t>(std::min(first + count, phonemes))];
    chosen[row].narrow(0, begin, end - begin).fill_(true);
  }
  return chosen.to(tokens.device());
}

AlignerFrames aligner_frames(const MelFrames& mel, const at::Tensor& waves, const at::Tensor& samples) {
  const at::Tensor bands = mel(waves).clamp_min(kFloor);
  const at::Tensor known = samples.to(at::kCPU, at::kLong).contiguous();
  std::vector<at::Tensor> rows;
  std::vector<int64_t> begins, lengths;
  for (int64_t i = 0; i < known.numel(); ++i) {
    const int64_t own = std::clamp<int64_t>(mel.frames(known.data_ptr<int64_t>()[i]), 1, bands.size(1));
    const Span span = sounding(bands[i].narrow(0, 0, own));
    const at::Tensor row = bands[i].slice(0, span.begin, span.end);
    const at::Tensor centred = row - row.mean();
    rows.push_back(centred / centred.square().mean().sqrt().clamp_min(1e-3));
    begins.push_back(span.begin);
    lengths.push_back(span.end - span.begin);
  }
  return {at::pad_sequence(rows, /*batch_first=*/true), at::tensor(begins, at::kLong),
          at::tensor(lengths, at::kLong)};
}

}  // namespace melete::voicebox
