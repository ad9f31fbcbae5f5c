#include "generate/load_frozen.h"

#include <filesystem>

#include "core/base/error.h"
#include "generate/load_codec.h"
#include "run/checkpoint.h"
#include "run/frozen_file.h"

namespace melete {

std::unique_ptr<SemanticTokenizer> load_semantic_tokenizer(const std::string& path) {
  return semantic_tokenizer_of(load_frozen(path), path);
}

std::unique_ptr<Codec> load_any_codec(const std::string& path) {
  if (std::filesystem::is_directory(path)) return std::make_unique<SoundStreamCodec>(load_codec(path).model);
  const std::string task = read_checkpoint_meta(path).value("task", "");
  if (task == "encodec") return std::make_unique<EncodecCodec>(encodec_of(load_frozen(path), path));
  require(task == "soundstream", "[codec] {} is a checkpoint of `{}`, not of a codec", path, task);
  return std::make_unique<SoundStreamCodec>(load_codec(path).model);
}

std::unique_ptr<TextEncoder> load_text_encoder(const std::string& path) {
  return text_encoder_of(load_frozen(path), path);
}

}  // namespace melete
