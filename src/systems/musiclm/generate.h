// MusicLM: music from a sentence, or in the manner of a recording. The joint embedding of what is asked for
// conditions AudioLM's three stages, several pieces are made at once, and the embedding says which fits best.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "roles/joint_embedding.h"
#include "systems/audiolm/audiolm.h"
#include "systems/musiclm/embed_quantizer.h"

namespace melete::musiclm {

struct MusicLm {
  AudioLm audiolm;                    // whose stages are conditioned on the tables of `condition`
  EmbedQuantizer condition{nullptr};  // one for all stages, or
  std::map<std::string, EmbedQuantizer> conditions;  // one a stage, each trained with its own
  std::shared_ptr<const JointEmbedding> embedding;

  EmbedQuantizer condition_of(const std::string& stage) const;

  // Throws an Error that names both values where sizes do not fit together.
  void check() const;
};

struct MusicRequest {
  std::string text;
  at::Tensor like;  // [samples]: a recording whose embedding stands for the text's, or is averaged with it
  int64_t like_rate_hz = 0;
  double like_share = 0.5;  // of the recording, where both are given
  int64_t samples = 1;      // pieces, of which the best is found
  AudioLmRequest audiolm;   // everything else: prompt, lengths, sampling, seed
  // musiclm-pytorch's way: the first stage's table conditions all three.
  bool one_table_for_all = false;
};

struct MusicResult {
  AudioLmResult audiolm;  // a row is a piece
  at::Tensor codes;       // [1, quantizers]: what the embedding became for the first stage
  at::Tensor scores;      // [samples]: how near what follows the prompt is to what was asked for
  int64_t best = 0;
};

// What is asked for, as a unit vector [1, dim].
at::Tensor target(const MusicLm& model, const MusicRequest& request);

// Products of unit vectors: each piece with the target. A piece too short to be heard scores -1. [pieces]
at::Tensor scores(const JointEmbedding& embedding, const std::vector<at::Tensor>& waves, int64_t rate_hz,
                  const at::Tensor& target);

MusicResult generate(MusicLm& model, const MusicRequest& request);

}  // namespace melete::musiclm
