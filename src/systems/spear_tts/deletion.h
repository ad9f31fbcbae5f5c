// What SPEAR-TTS pretrains on: speech with tokens deleted or masked, to be told from what is left.
#pragma once

#include <ATen/ATen.h>

namespace melete {
class Draws;
class Schema;
}  // namespace melete

namespace melete::spear_tts {

struct VocabularyImpl;

struct DeletionConfig {
  double share = 0.6;        // of a row's tokens
  bool reconstruct = false;  // the target is the whole row; false: what was deleted, in order
  int64_t mask_token = -1;   // stands where a token was; -1: nothing does, the rest closes up
  // spear-tts-pytorch's choice: the order of the draws is used as if it were their ranks, which with padding
  // deletes other numbers of tokens than asked for; and without a mask token padding is like any token.
  bool as_upstream = false;
};
void describe(Schema& schema, DeletionConfig& config);

// A random share of what is true in each row, rounded up, at least so many: bool [batch, n]
at::Tensor random_subset(const at::Tensor& eligible, double share, Draws& draws, bool as_upstream = false,
                         double at_least = 0);

struct Damaged {
  at::Tensor source, target;  // int64, padded
  at::Tensor deleted;         // bool [batch, n]: which tokens were taken
};
// ids int64 [batch, n] of `vocabulary`
Damaged damage(const at::Tensor& ids, const VocabularyImpl& vocabulary, const DeletionConfig& config,
               Draws& draws);

}  // namespace melete::spear_tts
