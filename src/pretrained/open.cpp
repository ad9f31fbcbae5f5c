// Roles that only frozen models have.
#include "roles/open.h"
#include "pretrained/import.h"
#include "run/kept_models.h"

namespace melete {

std::shared_ptr<const SemanticTokenizer> open_semantic_tokenizer(const std::string& path, at::Device device) {
  return kept_model<std::shared_ptr<const SemanticTokenizer>>("semantic tokenizer", path, device.str(), [&] {
    return put_on(device, semantic_tokenizer_of(load_frozen(path), path));
  });
}

std::shared_ptr<const TextEncoder> open_text_encoder(const std::string& path, at::Device device) {
  return kept_model<std::shared_ptr<const TextEncoder>>("text encoder", path, device.str(), [&] {
    return put_on<TextEncoder>(device, text_encoder_of(load_frozen(path), path));
  });
}

}  // namespace melete
