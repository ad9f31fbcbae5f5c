// The book-keeping of a beam search over any model of tokens: for every item of a batch the likeliest
// sequences so far, of which each goes on for itself and stops at its own end.
#pragma once

#include <ATen/ATen.h>

namespace melete {

class Schema;

struct BeamConfig {
  int64_t beams = 4;
  double length_exponent =
      0;  // sequences are ranked by log probability / length ^ this: above 0 favours long
  // A sequence that has ended goes on like any other, and what it gets after its end counts: the search stops
  // when all of all items have ended. spear-tts-pytorch does this.
  bool score_past_end = false;
};
void describe(Schema& schema, BeamConfig& config);

// Rows are items * beams: those of one item one after the other.
class Beams {
 public:
  // end: the token that ends a sequence; -1: there is none
  Beams(int64_t items, const BeamConfig& config, int64_t end, const at::TensorOptions& options);

  struct Step {
    at::Tensor parents;  // int64 [rows]: the row that each goes on from
    at::Tensor tokens;   // int64 [rows]: what it goes on with; of an ended one: the end again
  };
  // log_probabilities [rows, classes] of what may follow each row
  Step advance(const at::Tensor& log_probabilities);

  bool done() const { return going_.numel() == 0; }   // nothing that may follow can change an item's best
  const at::Tensor& going() const { return going_; }  // int64, increasing: items for which it still can
  void keep(const at::Tensor& items);                 // only these go on: int64, increasing
  int64_t length() const { return tokens_.size(2); }
  at::Tensor best_tokens() const;  // int64 [items, length]; after an end anything
  at::Tensor best_score() const;   // float32 [items]: log probability of the tokens up to the end

 private:
  void look_for_ends();

  BeamConfig config_;
  int64_t items_, end_;
  at::Tensor scores_;   // float32 [items, beams], the best first; -inf: not yet a beam
  at::Tensor lengths_;  // int64 [items, beams]: tokens up to the end
  at::Tensor ended_;    // bool [items, beams]
  at::Tensor tokens_;   // int64 [items, beams, length]
  at::Tensor going_;
};

}  // namespace melete
