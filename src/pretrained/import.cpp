#include "pretrained/import.h"

#include <cstring>

#include "core/base/error.h"
#include "io/foreign_file.h"
#include "nn/frozen.h"
#include "pretrained/encodec_names.h"
#include "pretrained/hubert_names.h"
#include "pretrained/t5_names.h"
#include "pretrained/vocos_names.h"
#include "pretrained/vq_wav2vec_names.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPieces = "tokenizer.sentencepiece";  // the model file's bytes

void expect_task(const FrozenModel& stored, const std::string& task, const std::string& where) {
  require(stored.task == task, "[{}] holds `{}`, expected `{}`", where, stored.task, task);
}

template <class Config>
Config config_of(const FrozenModel& stored) {
  Config config;
  schema_of(config).apply(stored.config);
  return config;
}

template <class Model>
Json json_of(const Model& model) {
  auto config = model->config();
  return schema_of(config).json();
}

}  // namespace

Hubert import_hubert(const std::string& path, int64_t layers) {
  const ForeignFile file = read_foreign(path);
  HubertConfig config;
  if (file.config.is_object())
    config = foreign_hubert::from_config_json(file.config);
  else if (file.model.is_object() && file.model.contains("encoder_embed_dim"))
    config = foreign_hubert::from_fairseq(file.model, file.task);
  else
    config = foreign_hubert::from_weights(file.tensors, file.path);
  return foreign_hubert::load(config, file.tensors, file.path, layers);
}

Encodec import_encodec(const std::string& path, double kbit_per_second) {
  const ForeignFile file = read_foreign(path);
  EncodecConfig config = file.config.is_object() ? foreign_encodec::from_config_json(file.config)
                                                 : foreign_encodec::from_weights(file.tensors, file.path);
  require(config.input_channels == 1,
          "[{}] is an EnCodec of {} channels; melete uses the 24 kHz model, which has one", file.path,
          config.input_channels);
  config.quantizers = config.quantizers_for(kbit_per_second);
  return foreign_encodec::load(config, file.tensors, file.path);
}

Vocos import_vocos(const std::string& path) {
  const ForeignFile file = read_foreign(path);
  return foreign_vocos::load(foreign_vocos::from_weights(file.tensors, file.path), file.tensors, file.path);
}

std::unique_ptr<T5TextEncoder> import_t5(const std::string& path, const std::string& sentencepiece_path,
                                         int64_t max_tokens) {
  const ForeignFile file = read_foreign(path);
  T5Config config = file.config.is_object() ? huggingface::t5_config(file.config)
                                            : huggingface::t5_config(file.tensors, file.path);
  config.max_tokens = max_tokens;
  return std::make_unique<T5TextEncoder>(huggingface::load_t5(config, file.tensors, file.path),
                                         std::make_shared<SentencePieceTokenizer>(sentencepiece_path));
}

std::unique_ptr<VqWav2VecTokenizer> import_vq_wav2vec(const std::string& path, int64_t sample_rate_hz) {
  const ForeignFile file = read_foreign(path);
  VqWav2VecConfig config = fairseq::vq_wav2vec_config(file.model, file.tensors, file.path);
  if (sample_rate_hz > 0) config.sample_rate_hz = sample_rate_hz;
  return std::make_unique<VqWav2VecTokenizer>(fairseq::load_vq_wav2vec(config, file.tensors, file.path));
}

FrozenModel frozen(const Hubert& model) {
  return {"hubert", json_of(model), tensors_of(*model)};
}

FrozenModel frozen(const Encodec& model) {
  return {"encodec", json_of(model), tensors_of(*model)};
}

FrozenModel frozen(const T5TextEncoder& encoder) {
  FrozenModel result{"t5", json_of(encoder.model()), tensors_of(*encoder.model())};
  const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&encoder.tokenizer());
  require(pieces != nullptr, "[t5] only a SentencePiece tokenizer can be stored, got `{}`",
          encoder.tokenizer().kind());
  const std::string& bytes = pieces->model_bytes();
  at::Tensor stored = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(stored.data_ptr(), bytes.data(), bytes.size());
  result.tensors.emplace(kPieces, stored);
  return result;
}

FrozenModel frozen(const Vocos& vocoder, const MelFramesConfig& mel) {
  MelFramesConfig settings = mel;
  FrozenModel result{"vocos", {{"mel", schema_of(settings).json()}, {"model", json_of(vocoder)}}, {}};
  for (const auto& [name, tensor] : tensors_of(*vocoder)) result.tensors["vocoder." + name] = tensor;
  return result;
}

FrozenModel frozen(const Encodec& codec, const Vocos& vocoder, int64_t bandwidth) {
  FrozenModel result{"encodec-vocos",
                     {{"encodec", json_of(codec)}, {"model", json_of(vocoder)}, {"bandwidth", bandwidth}},
                     {}};
  for (const auto& [name, tensor] : tensors_of(*codec)) result.tensors["encodec." + name] = tensor;
  for (const auto& [name, tensor] : tensors_of(*vocoder)) result.tensors["vocoder." + name] = tensor;
  return result;
}

FrozenModel frozen(const KmeansTokenizer& tokenizer) {
  return {"semantic-tokenizer", tokenizer.config(), tokenizer.tensors()};
}

FrozenModel frozen(const VqWav2VecTokenizer& tokenizer) {
  return {"semantic-tokenizer",
          {{"kind", "vq-wav2vec"}, {"vq_wav2vec", json_of(tokenizer.model())}},
          tensors_of(*tokenizer.model())};
}

Hubert hubert_of(const FrozenModel& stored, const std::string& where) {
  expect_task(stored, "hubert", where);
  Hubert model(config_of<HubertConfig>(stored));
  load_tensors(*model, stored.tensors, where);
  freeze(*model);
  return model;
}

Encodec encodec_of(const FrozenModel& stored, const std::string& where) {
  expect_task(stored, "encodec", where);
  Encodec model(config_of<EncodecConfig>(stored));
  load_tensors(*model, stored.tensors, where);
  freeze(*model);
  return model;
}

std::unique_ptr<T5TextEncoder> text_encoder_of(const FrozenModel& stored, const std::string& where) {
  expect_task(stored, "t5", where);
  TensorMap tensors = stored.tensors;
  const auto pieces = tensors.find(kPieces);
  require(pieces != tensors.end() && pieces->second.scalar_type() == at::kByte, "[{}] has no `{}`", where,
          kPieces);
  const at::Tensor bytes = pieces->second.contiguous();
  std::string model_bytes(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()),
                          static_cast<size_t>(bytes.numel()));
  tensors.erase(pieces);
  T5Encoder model(config_of<T5Config>(stored));
  load_tensors(*model, tensors, where);
  return std::make_unique<T5TextEncoder>(
      std::move(model), std::make_shared<SentencePieceTokenizer>(std::move(model_bytes), where));
}

std::unique_ptr<SemanticTokenizer> semantic_tokenizer_of(const FrozenModel& stored,
                                                         const std::string& where) {
  expect_task(stored, "semantic-tokenizer", where);
  const std::string kind = stored.config.value("kind", "");
  if (kind == "kmeans") return make_kmeans_tokenizer(stored.config, stored.tensors, where);
  require(kind == "vq-wav2vec", "[{}] expected a tokenizer `kmeans` or `vq-wav2vec`, got `{}`", where, kind);
  VqWav2VecConfig config;
  schema_of(config).apply(stored.config.at("vq_wav2vec"));
  VqWav2Vec model(config);
  load_tensors(*model, stored.tensors, where);
  return std::make_unique<VqWav2VecTokenizer>(std::move(model));
}

}  // namespace melete
