// spear-tts-pytorch's arguments and state dicts, in our terms.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generate/sampling.h"
#include "io/tensors.h"
#include "systems/spear_tts/losses.h"

namespace melete::spear_tts {

// What its TextToSemantic is made with: some of it belongs to our model, some to our losses.
struct ForeignSettings {
  TextToSemanticConfig model;
  LossConfig loss;
};
ForeignSettings foreign_settings(const nlohmann::ordered_json& arguments);
// deletion_prob, reconstruct_seq and mask_id of its pretraining; others are not looked at.
DeletionConfig foreign_deletion(const nlohmann::ordered_json& arguments);
// The filter of its generate(): filter_logits_fn (top_k or top_p) with its thres or k, for so many classes.
SamplingConfig foreign_filter(const nlohmann::ordered_json& arguments, int64_t classes);

// One of our parameters or buffers, and the names under which its file holds it: several, where weights are
// tied or a rotation is shared by layers. The first is the one that its list of parameters has.
struct ForeignTensor {
  std::string ours;
  std::vector<std::string> theirs;
  at::Tensor tensor;  // ours, in their shape
};
std::vector<ForeignTensor> foreign_tensors(TextToSemanticImpl& model);

// An Error names what is missing, of another shape, superfluous, or not the same under all its names. A
// tokenizer that the file holds (wav2vec.) is left out.
void load_state_dict(TextToSemanticImpl& model, const TensorMap& state_dict);
TensorMap state_dict(TextToSemanticImpl& model);
// The same in the order of their modules: a name, and the tensor that stands there.
std::vector<std::pair<std::string, ForeignTensor>> state_entries(TextToSemanticImpl& model);

// The parameters in the order in which their optimisers count them (by their first name). Their rotation is a
// parameter: frozen at first, but unfrozen with everything else by the two trainers that then freeze parts.
struct ForeignParameters {
  std::vector<std::string> trained, frozen;
  std::vector<std::string> in_optimiser;
};
ForeignParameters foreign_parameters(TextToSemanticImpl& model, const Direction& direction,
                                     int64_t frozen_encoder_layers);

}  // namespace melete::spear_tts
