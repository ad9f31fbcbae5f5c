// Roles that only frozen models have.
#include "roles/open.h"
#include "pretrained/import.h"

namespace melete {

std::unique_ptr<SemanticTokenizer> open_semantic_tokenizer(const std::string& path, at::Device device) {
  return put_on(device, semantic_tokenizer_of(load_frozen(path), path));
}

std::unique_ptr<TextEncoder> open_text_encoder(const std::string& path, at::Device device) {
  return put_on<TextEncoder>(device, text_encoder_of(load_frozen(path), path));
}

}  // namespace melete
