#include "systems/spear_tts/load.h"

#include "config/schema.h"
#include "core/base/error.h"
#include "run/kept_models.h"
#include "systems/spear_tts/system.h"

namespace melete::spear_tts {

namespace {

Reader reader_of(const FoundCheckpoint& found, Weights weights) {
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

}  // namespace

Reader open_reader(const std::string& path, Weights weights, at::Device device) {
  return open_reader(path, weights, kTextToSemanticTask, device);
}

Reader open_reader(const std::string& path, Weights weights, const std::string& task, at::Device device) {
  return kept_model<Reader>(task, path, weights_name(weights) + device.str(), [&] {
    Reader reader = reader_of(open_checkpoint(path, "spear-tts", task), weights);
    reader.model->to(device);
    return reader;
  });
}

Reader open_reader_of_any(const std::string& path, Weights weights) {
  const FoundCheckpoint found = open_checkpoint(path, "spear-tts");
  const std::string task = found.checkpoint.meta.value("task", "");
  for (const char* known : {kPretrainTask, kBackTranslateTask, kTextToSemanticTask})
    if (task == known) return reader_of(found, weights);
  fail("[spear-tts] expected a run of {}, {} or {}, got one of {}: {}", kPretrainTask, kBackTranslateTask,
       kTextToSemanticTask, task, found.path);
}

}  // namespace melete::spear_tts
