// How good a joint embedding is: what it finds among held-out pairs, and what it names without training.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "systems/musiclm/retrieval.h"
#include "systems/musiclm/zero_shot.h"

namespace melete::musiclm {

// Pairs of unit vectors; row i of both belongs to texts[i]. Items with the same text are partners of each
// other.
struct EvaluatedPairs {
  at::Tensor audio, text;  // [pairs, dim]
  std::vector<std::string> texts;
};

struct RetrievalTable {
  int64_t among = 0;  // candidates of each query
  std::vector<int64_t> ks;
  RetrievalFigures text_to_audio, audio_to_text, chance;
};

// In groups of `among` pairs drawn without replacement (what is left over is not counted), figures averaged
// over groups; 0: all at once.
RetrievalTable evaluate_retrieval(const EvaluatedPairs& pairs, int64_t among, uint64_t seed);

struct ZeroShotTable {
  std::vector<std::string> labels;
  at::Tensor confusion;     // [labels, labels] int64: true label, label given
  int64_t left_out = 0;     // items whose text has none of the labels, or several
  double accuracy() const;  // share that was named right
  double majority() const;  // of always saying the most frequent label
};

// An item's true label is the one that its text holds as whole words.
ZeroShotTable evaluate_zero_shot(const EvaluatedPairs& pairs, const ZeroShot& classifier);

}  // namespace melete::musiclm
