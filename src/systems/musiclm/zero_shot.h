// Naming what is heard by labels that nobody trained on: a label is a sentence, and the nearest one names the
// sound.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "roles/joint_embedding.h"

namespace melete::musiclm {

class ZeroShot {
 public:
  // A label's vector is the mean over its templates. scale: what products are multiplied with before the
  // softmax; a trained model has learned it.
  ZeroShot(const JointEmbedding& embedding, std::vector<std::string> labels,
           const std::vector<std::string>& templates, double scale);

  const std::vector<std::string>& labels() const { return labels_; }
  const std::vector<std::string>& sentences() const {
    return sentences_;
  }  // of all labels, as they were read
  // vectors [n, dim] of sounds -> [n, labels], rows that add up to 1
  at::Tensor probabilities(const at::Tensor& vectors) const;

 private:
  std::vector<std::string> labels_, sentences_;
  at::Tensor vectors_;  // [labels, dim]
  double scale_;
};

}  // namespace melete::musiclm
