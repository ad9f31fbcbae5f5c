// What SPEAR-TTS is trained on: the tokens of a target, given those of a source.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "systems/spear_tts/deletion.h"
#include "systems/spear_tts/text_to_semantic.h"

namespace melete::spear_tts {

// Sources that are alike shall be decoded to what is alike ("representation regularization", Zhao et al.
// 2023): similarities within a batch, of encoder outputs and of decoder outputs, are pulled together.
struct AlignmentConfig {
  double weight = 0.1;                // 0: off
  std::string pooling = "logsumexp";  // over time: logsumexp, max
  double temperature = 0.1;           // of logsumexp; towards 0 it becomes max
};
void describe(Schema& schema, AlignmentConfig& config);

struct LossConfig {
  double early_exit_weight = 1;
  AlignmentConfig alignment;
  // As spear-tts-pytorch does it: one coin drops the sources of a whole batch, and there is an alignment loss
  // only when it did.
  bool as_upstream = false;
};
void describe(Schema& schema, LossConfig& config);

struct Pair {
  at::Tensor source, target;  // int64 [batch, n], padded, without ends
  Direction direction = kTextToSpeech;
  at::Tensor source_seen, target_seen;  // see Source and TextToSemanticImpl::decode; undefined: by padding
};

// How a batch is gone through; the defaults are those of validation.
struct LossPass {
  double condition_drop = 0;  // training: the model's
  bool early_exit = false;    // its loss, too, where the model has one and writes speech
  bool align = true;          // with the weight of the settings
  bool training = false;      // with dropout
  Draws* draws = nullptr;     // for dropout, for dropping sources and for deleting tokens
  // Rows of all ranks, with gradient, for the alignment: [batch, dim] -> [all, dim]; empty: those given
  std::function<at::Tensor(const at::Tensor&)> gather;
};

struct PairLosses {
  at::Tensor total;
  std::vector<std::pair<std::string, at::Tensor>> named;  // detached scalars: losses and accuracies
  at::Tensor logits;  // [batch, n + 1, classes]: of the target with its end (n without one)
};

PairLosses pair_losses(TextToSemantic& model, const Pair& pair, const LossConfig& config,
                       const LossPass& pass);

// speech: int64 [batch, n]; in validation, too, tokens are deleted, so draws are needed.
PairLosses pretraining_losses(TextToSemantic& model, const at::Tensor& speech, const DeletionConfig& deletion,
                              const LossConfig& config, const LossPass& pass);

// source, target [batch, dim], pooled over time. Zero for a single row, which has no other to be like.
at::Tensor alignment_loss(const at::Tensor& source, const at::Tensor& target);

}  // namespace melete::spear_tts
