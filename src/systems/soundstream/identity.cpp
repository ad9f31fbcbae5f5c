#include "systems/soundstream/identity.h"

#include "io/base/checksum.h"
#include "nn/frozen.h"

namespace melete {

namespace {

const YoungerSettings kYounger = {"quantizer.codebooks",
                                  "quantizer.separate_codebooks",
                                  "quantizer.epsilon",
                                  "quantizer.codebook_update",
                                  "quantizer.cross_entropy_commitment",
                                  "quantizer.commitment_gradient_of_moved",
                                  "quantizer.orthogonal_weight",
                                  "quantizer.orthogonal_active_only",
                                  "quantizer.orthogonal_max_codes",
                                  "quantizer.differentiable_choice",
                                  "quantizer.reinmax",
                                  "quantizer.synchronous_update",
                                  "quantizer.affine",
                                  "quantizer.affine_vectors_decay",
                                  "quantizer.affine_codes_decay",
                                  "quantizer.factorised_entropy",
                                  "quantizer.scale",
                                  "quantizer.lfq_activation",
                                  "code_order",
                                  "front",
                                  "front_hop",
                                  "noise_from_hz",
                                  "lowest_note",
                                  "tones",
                                  "noise_bands",
                                  "quantizer.search_beams",
                                  "quantizer.training_beams"};
// Of these, those that came after a program that counted all settings.
const YoungerSettings kYoungest = {"code_order",
                                   "front",
                                   "front_hop",
                                   "noise_from_hz",
                                   "lowest_note",
                                   "tones",
                                   "noise_bands",
                                   "quantizer.search_beams",
                                   "quantizer.training_beams",
                                   "quantizer.commitment_gradient_of_moved"};

SoundStreamConfig telling_settings(const SoundStreamImpl& model) {
  SoundStreamConfig config = model.config();
  if (config.quantizer.groups == 1) config.code_order = SoundStreamConfig{}.code_order;  // there is only one
  return config;
}

std::string former_identity(const SoundStreamImpl& model, const YoungerSettings& younger) {
  SoundStreamConfig config = telling_settings(model), plain;
  Checksum sum;
  sum.add(identifying_settings(schema_of(config).json(), schema_of(plain).json(), younger).dump());
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (name.ends_with(".embedding_sum") || name.ends_with(".counts")) return;
    const at::Tensor values = tensor.detach().cpu().contiguous();
    sum.add(name);
    for (const int64_t size : values.sizes()) sum.add(size);
    sum.add({static_cast<const std::byte*>(values.data_ptr()), static_cast<size_t>(values.nbytes())});
  };
  for (const auto& item : model.named_parameters()) add(item.key(), item.value());
  for (const auto& item : model.named_buffers()) add(item.key(), item.value());
  return sum.hex();
}

}  // namespace

std::string soundstream_identity(const SoundStreamImpl& model) {
  return identity_of_model("soundstream", telling_settings(model), tensors_of(model), kYounger);
}

std::string latents_identity(const SoundStreamImpl& model) {
  SoundStreamConfig config = model.config();
  config.code_order = SoundStreamConfig{}.code_order;
  return identity_of_model("soundstream latents", config, tensors_of(model), kYoungest);
}

std::vector<std::string> former_file_identities(const SoundStreamImpl& model) {
  // Of programs before the younger settings, and of those that wrote all of them.
  return {former_identity(model, kYounger), former_identity(model, kYoungest)};
}

}  // namespace melete
