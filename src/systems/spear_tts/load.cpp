#include "systems/spear_tts/load.h"

#include "config/schema.h"
#include "systems/spear_tts/system.h"

namespace melete::spear_tts {

Reader open_reader(const std::string& path, Weights weights) {
  const FoundCheckpoint found = open_checkpoint(path, "spear-tts", kTextToSemanticTask);
  const auto& settings = found.checkpoint.meta.at("config");
  TextToSemanticConfig config;
  schema_of(config).apply(settings.at("model"));
  TextTokenizerConfig text;
  schema_of(text).apply(settings.at("text"));
  if (const auto pieces = found.checkpoint.tensors.find(kKeptPieces);
      pieces != found.checkpoint.tensors.end())
    text.pieces.assign(static_cast<const char*>(pieces->second.data_ptr()), pieces->second.nbytes());
  Reader reader;
  reader.model = TextToSemantic(config);
  reader.model->eval();
  load_weights(*reader.model, "", found, weights, "spear-tts");
  reader.text = make_text_tokenizer(text);
  reader.semantic_identity = settings.value("semantic_identity", "");
  reader.semantic_from = settings.value("semantic_from", "");
  reader.repeats = settings.value("repeats", false);
  return reader;
}

}  // namespace melete::spear_tts
