#include "systems/musiclm/zero_shot.h"

#include "core/base/error.h"
#include "nn/codebook.h"

namespace melete::musiclm {

std::string in_template(const std::string& around, const std::string& text) {
  const size_t hole = around.find("{}");
  return around.substr(0, hole) + text + around.substr(hole + 2);
}

void check_templates(const std::vector<std::string>& templates, const std::string& setting) {
  require(!templates.empty(), "[{}] expected at least one, got none", setting);
  for (const std::string& each : templates)
    require(each.find("{}") != std::string::npos, "[{}] expected {{}} where the text goes, got `{}`", setting,
            each);
}

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
      require(!label.empty(), "[classify] a label is empty");
      sentences.push_back(in_template(around, label));
    }
    const at::Tensor each = embedding.embed_text(sentences).to(at::kCPU, at::kFloat);
    sum = sum.defined() ? sum + each : each;
  }
  vectors_ = unit_vectors(sum);
}

at::Tensor ZeroShot::probabilities(const at::Tensor& vectors) const {
  return at::softmax(at::mm(vectors.to(at::kCPU, at::kFloat), vectors_.t()) * scale_, 1);
}

}  // namespace melete::musiclm
