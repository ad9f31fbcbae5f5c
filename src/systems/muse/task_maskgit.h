// Training MaskGit on tokens of pictures and their captions.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generate/iterative_masking.h"
#include "roles/text_encoder.h"
#include "systems/muse/picture_tokenizer.h"
#include "systems/muse/texted_maskgit.h"
#include "train/phase_config.h"

namespace melete::muse {

struct MaskGitTaskConfig {
  PhaseConfig phase;
  std::vector<std::string> prompts;  // samples of these, beside those of held-out captions
  double guidance = 3;               // of samples
  IterativeMaskingConfig decoding;   // of samples

  MaskGitTaskConfig();
};
void describe(Schema& schema, MaskGitTaskConfig& config);

// How tokens become the pictures of a sample, and prompts features.
struct SamplePictures {
  std::shared_ptr<const PictureTokenizer> tokenizer;  // none: no samples
  int64_t height = 0, width = 0;
  std::shared_ptr<const TextEncoder> text = {};  // none: the model has its own
};

// Batches have "tokens" int64 [items, positions], for super-resolution "condition" int64 [items, n], words
// "text", and "text_features" [items, length, text_dim] where the model has no text encoder.
class MaskGitTask : public Task {
 public:
  MaskGitTask(const TextedMaskGitConfig& model, const MaskGitTaskConfig& config, SamplePictures samples,
              nlohmann::ordered_json whole_config);

  std::string name() const override;
  torch::nn::Module& model() override { return *model_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;
  std::map<std::string, double> chance_levels() const override;

  TextedMaskGit& texted() { return model_; }

 private:
  MaskGitImpl::Batch input(const Batch& batch, Draws* draws);
  // Pictures of texts, [items, channels, height, width] in [0, 1]; positions: their tokens.
  at::Tensor sample(const at::Tensor& text, const at::Tensor& condition, int64_t positions,
                    const std::string& draws_for);
  at::Tensor shown(const at::Tensor& tokens) const;

  MaskGitTaskConfig config_;
  SamplePictures samples_;
  nlohmann::ordered_json whole_config_;
  TextedMaskGit model_;
};

}  // namespace melete::muse
