// What the cases of voicebox-pytorch share.
#pragma once

#include <memory>
#include <string>

#include "golden.h"
#include "pretrained/vocos_features.h"
#include "systems/voicebox/foreign_names.h"

namespace melete::golden {

// Of gradients: attention between normalised queries and keys is sharp, see the system's README.
constexpr double kVoiceboxGradient = 2e-3;

// Draws by upstream's names for them: rand.<prefix>x0, rand.<prefix>frac_lengths, ...
class VoiceboxDraws : public Draws {
 public:
  // low, high: the shares of a span, which were recorded as they came out of that range
  VoiceboxDraws(const Case& recorded, std::string prefix, double low, double high);
  int64_t integer(std::string_view what, int64_t low, int64_t high) override;
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override;
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override;
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override;

 private:
  const at::Tensor& recorded(std::string_view what) const;

  const Case& case_;
  std::string prefix_;
  double low_, high_;
};

// in.<key>, or an undefined tensor
at::Tensor optional_input(const Case& c, const std::string& key);

// Weights below that prefix, or all where none has it.
TensorMap weights_of(const Case& c, const std::string& prefix);

// The EncodecVoco whose weights stand below `audio_enc_dec.` (or at the top of its own case).
std::unique_ptr<EncodecVocos> encodec_vocos(const Case& c, const TensorMap& weights);

// Vocos's settings from its weights, and what they do not tell from the case's `vocos`, where it has one.
VocosConfig vocos_config(const Case& c, const TensorMap& weights);

voicebox::Voicebox voicebox_network(const Case& c, const nlohmann::ordered_json& arguments,
                                    const TensorMap& weights, int64_t latent_dim = 0);

// prefix: what stands before the module's names in the case's gradients
void check_gradients(const Case& c, Checker& check, torch::nn::Module& module,
                     const std::string& prefix = "");

}  // namespace melete::golden
