#include "systems/musiclm/zero_shot.h"

#include "core/base/error.h"
#include "nn/codebook.h"
#include "systems/musiclm/labels.h"

namespace melete::musiclm {

ZeroShot::ZeroShot(const JointEmbedding& embedding, std::vector<std::string> labels,
                   const std::vector<std::string>& templates, double scale)
    : labels_(std::move(labels)), scale_(scale) {
  require(labels_.size() >= 2, "[classify] expected at least two labels to choose from, got {}",
          labels_.size());
  check_templates(templates, "templates");
  at::Tensor sum;
  for (const std::string& around : templates) {
    std::vector<std::string> sentences;
    for (const std::string& label : labels_) {
      require(!embedding.fit(label).wordless, "[classify] the label `{}` has no words", label);
      sentences.push_back(in_template(around, label));
    }
    sentences_.insert(sentences_.end(), sentences.begin(), sentences.end());
    const at::Tensor each = embedding.embed_text(sentences).to(at::kCPU, at::kFloat);
    sum = sum.defined() ? sum + each : each;
  }
  vectors_ = unit_vectors(sum);
}

at::Tensor ZeroShot::probabilities(const at::Tensor& vectors) const {
  return at::softmax(at::mm(vectors.to(at::kCPU, at::kFloat), vectors_.t()) * scale_, 1);
}

}  // namespace melete::musiclm
