// The decoder during generation: what was read, a cache of what was written, and guidance.
#pragma once

#include <optional>
#include <vector>

#include "generate/logit_head.h"
#include "systems/spear_tts/decoder_step.h"
#include "systems/spear_tts/text_to_semantic.h"

namespace melete::spear_tts {

struct DecoderOptions {
  Modality target = Modality::speech;
  int64_t longest = 2048;                          // tokens that a row may get
  int64_t ahead = 0;                               // positions beyond those, for drafts
  int64_t rows_per_source = 1;                     // beams
  double guidance = 1;                             // see SamplingConfig
  WeightStorage storage = WeightStorage::float32;  // of the weights that single positions read
  bool by_operators = false;                       // single positions, too: for comparison
};

// Runs without gradients, in eval mode. Rows that continue one source stand one after the other.
class Decoder {
 public:
  Decoder(TextToSemanticImpl& model, const Source& source, const DecoderOptions& options);

  int64_t rows() const { return rows_; }

  // What the position holds that follows: ids int64 [rows], undefined for the start. -> the stream
  // [streams, 1, dim], where streams are the rows, and with guidance as many without a source after them.
  at::Tensor embed(const at::Tensor& ids);
  // The streams' positions from first[row] on through some layers, [streams, n, dim] -> the same.
  at::Tensor run(const at::Tensor& streams, const std::vector<int64_t>& first, LayerRange layers);
  LayerRange all_layers() const { return {0, model_.config().decoder_layers}; }
  LayerRange early_layers() const { return {0, model_.config().early_exit_layer}; }
  LayerRange late_layers() const {
    return {model_.config().early_exit_layer, model_.config().decoder_layers};
  }
  at::Tensor logits(const at::Tensor& streams);        // after all layers: [rows, n, classes], guided
  at::Tensor early_logits(const at::Tensor& streams);  // after the early ones

  // One position of all rows, after those before: ids as for embed() -> logits [rows, classes], guided
  at::Tensor next(const at::Tensor& ids);

  // Row i goes on from what row parents[i] was, of the same source. int64 [rows]
  void branch(const at::Tensor& parents);
  // Only these sources go on, with their rows: int64, increasing
  void keep_sources(const at::Tensor& sources);

 private:
  at::Tensor guide(const at::Tensor& logits) const;
  void take(const at::Tensor& rows);

  TextToSemanticImpl& model_;
  VocabularyImpl& vocabulary_;
  double guidance_;
  bool guided_;
  int64_t rows_, rows_per_source_, position_ = 0;
  Cache cache_;
  // Packed on the CPU, for a few positions at a time.
  std::optional<DecoderStep> step_;
  std::optional<LogitHead> head_;
  std::optional<EarlyExitStep> early_head_;
  int64_t most_lines_ = kFewRows;  // that go through the packed weights at once
};

}  // namespace melete::spear_tts
