// What the cases of spear-tts-pytorch share.
#pragma once

#include <deque>

#include "golden.h"
#include "systems/spear_tts/foreign_names.h"
#include "systems/spear_tts/generate.h"

namespace melete::golden {

struct SpearModel {
  spear_tts::ForeignSettings settings;
  spear_tts::TextToSemantic model{nullptr};
};
// From the arguments of their TextToSemantic and the case's weights, which may stand below "model.".
SpearModel spear_model(const Case& c, const nlohmann::ordered_json& arguments);

spear_tts::Modality modality(const nlohmann::ordered_json& name);
spear_tts::Direction direction(const nlohmann::ordered_json& call);

// A mask that was given with the call; undefined where none was.
at::Tensor given_mask(const Case& c, const std::string& key);

// Draws by what they are for, from the tensors below `prefix` ("rand."). Those of dropout are all that have
// "dropout" in their name, in their order: uniform values, or masks of what was kept (of 0 and one other
// value).
class SpearDraws : public Draws {
 public:
  SpearDraws(const Case& recorded, std::string prefix);

  bool has_dropout() const { return !dropout_.empty(); }
  bool has(const std::string& name) const { return case_.has(prefix_ + name); }
  int64_t integer(std::string_view what, int64_t low, int64_t high) override;
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override;
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override;
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override;

 private:
  const Case& case_;
  std::string prefix_;
  std::deque<at::Tensor> dropout_;
  int64_t step_ = 0;
};

// A case of the class TextToSemantic that calls the model, and one that generates with it.
void check_spear_forward(const Case& c, Checker& check);
void check_spear_generation(const Case& c, Checker& check);

// Gradients of all parameters that have one in the case, and that no other has.
void check_gradients(const Case& c, Checker& check, spear_tts::TextToSemantic& model);

}  // namespace melete::golden
