#include "systems/spear_tts/foreign_files.h"

#include <filesystem>

#include "core/base/error.h"
#include "io/foreign_weights.h"
#include "systems/spear_tts/system.h"

namespace melete::spear_tts {

namespace {

using Json = nlohmann::ordered_json;

const std::string kWhere = "spear-tts-pytorch";

int64_t size_at(const TensorMap& state, const std::string& name, int64_t dimension) {
  return weight_size(state, name, dimension, kWhere);
}

// Their inner width is cut to an integer: the middle of what gives it.
double feed_forward_multiplier(int64_t inner, int64_t dim) {
  const auto width = [&](double multiplier) {
    return static_cast<int64_t>(static_cast<double>(dim) * multiplier * 2 / 3);
  };
  const double exact = static_cast<double>(inner) * 1.5 / static_cast<double>(dim);
  const double rounded = std::round(exact);
  return width(rounded) == inner ? rounded
                                 : (static_cast<double>(inner) + 0.5) * 1.5 / static_cast<double>(dim);
}

bool given_false(const Json& given, const char* name) {
  return given.contains(name) && given[name] == false;
}

}  // namespace

Json arguments_of_file(const TensorMap& state, const Json& given, std::vector<std::string>& notes) {
  const std::string cross = "target_transformer.layers.0.1.null_kv";
  Json made;
  made["dim"] = size_at(state, "token_emb.text.weight", 1);
  made["source_depth"] = numbered_below(state, "source_transformer.layers.");
  made["target_depth"] = numbered_below(state, "target_transformer.layers.");
  const auto tokens = [&](const char* name, const char* end) {
    return size_at(state, name, 0) - (given_false(given, end) ? 0 : 1);
  };
  made["num_text_token_ids"] = tokens("token_emb.text.weight", "autoset_text_eos_id");
  made["num_semantic_token_ids"] = tokens("token_emb.speech.weight", "autoset_semantic_eos_id");
  const int64_t heads = size_at(state, cross, 1), head_dim = size_at(state, cross, 3);
  made["heads"] = heads;
  made["dim_head"] = head_dim;
  made["target_kv_heads"] =
      size_at(state, "target_transformer.layers.0.0.to_kv.0.weight", 0) / (2 * head_dim);
  made["ff_mult"] = feed_forward_multiplier(size_at(state, "source_transformer.layers.0.2.4.weight", 1),
                                            made["dim"].get<int64_t>());
  for (const auto& [name, value] : made.items())
    if (name != "ff_mult" && given.contains(name) && !given[name].is_null() && given[name] != value)
      fail("[{}] the given arguments say {} = {}, the weights say {}", kWhere, name, given[name].dump(),
           value.dump());
  const bool early_exit = find_weight(state, "to_early_exit_semantic_logits.2.weight") != nullptr;
  require(!early_exit || given.contains("target_early_exit_layer"),
          "[{}] the model has an early exit, and weights do not tell after which layer; give "
          "target_early_exit_layer=N",
          kWhere);
  require(
      early_exit || !given.contains("target_early_exit_layer") || given["target_early_exit_layer"].is_null(),
      "[{}] target_early_exit_layer was given, but the weights have no early exit", kWhere);
  for (const auto& [name, value] : given.items()) made[name] = value;
  std::string defaults;
  for (const char* name : {"attn_dropout", "ff_dropout", "cond_drop_prob", "semantic_pad_id", "text_pad_id",
                           "align_reg_loss_weight"})
    if (!made.contains(name)) defaults += fmt::format("{}{}", defaults.empty() ? "" : ", ", name);
  if (!defaults.empty())
    notes.push_back(fmt::format(
        "the file holds no settings: sizes were taken from its weights; {} are upstream's defaults",
        defaults));
  return made;
}

Json foreign_arguments(const ForeignSettings& settings) {
  const TextToSemanticConfig& model = settings.model;
  const AlignmentConfig& alignment = settings.loss.alignment;
  Json made = {{"dim", model.dim},
               {"source_depth", model.encoder_layers},
               {"target_depth", model.decoder_layers},
               {"num_text_token_ids", model.text.tokens},
               {"num_semantic_token_ids", model.speech.tokens},
               {"heads", model.heads},
               {"dim_head", model.head_dim},
               {"ff_mult", model.feed_forward_multiplier},
               {"attn_dropout", model.attention_dropout},
               {"ff_dropout", model.feed_forward_dropout},
               {"semantic_pad_id", model.speech.padding},
               {"text_pad_id", model.text.padding},
               {"autoset_semantic_eos_id", model.speech.end},
               {"autoset_text_eos_id", model.text.end},
               {"cond_drop_prob", model.condition_drop},
               {"align_reg_loss_weight", alignment.weight},
               {"align_reg_use_logsumexp_pool", alignment.pooling == "logsumexp"},
               {"align_reg_logsumexp_pool_temp", alignment.temperature}};
  if (model.decoder_key_heads > 0) made["target_kv_heads"] = model.decoder_key_heads;
  if (model.early_exit_layer > 0) {
    made["target_early_exit_layer"] = model.early_exit_layer;
    made["detach_early_exit_embed"] = model.early_exit_detached;
  }
  return made;
}

const std::vector<ForeignTrainer>& foreign_trainers() {
  static const std::vector<ForeignTrainer> trainers = {
      {kPretrainTask, "speech.speech.", kSpeechToSpeech},
      {kBackTranslateTask, "semantic.text.", kSpeechToText},
      {kTextToSemanticTask, "text.semantic.", kTextToSpeech}};
  return trainers;
}

ForeignTraining training_of_file(TextToSemanticImpl& model, const std::string& path,
                                 int64_t optimiser_parameters, std::vector<std::string>& notes) {
  const std::string name = std::filesystem::path(path).filename().string();
  std::vector<ForeignTrainer> possible;
  for (const ForeignTrainer& trainer : foreign_trainers())
    if (name.starts_with(trainer.file_begins_with)) possible.push_back(trainer);
  const bool named = !possible.empty();
  if (!named) possible = foreign_trainers();
  if (optimiser_parameters == 0) {
    if (!named)
      notes.push_back(fmt::format("nothing tells which trainer saved it: taken as {}", possible.back().task));
    return {possible.back(), 0};
  }
  for (const ForeignTrainer& trainer : possible) {
    const int64_t most = trainer.direction == kTextToSpeech ? model.config().encoder_layers : 0;
    for (int64_t frozen = 0; frozen <= most; ++frozen)
      if (static_cast<int64_t>(foreign_parameters(model, trainer.direction, frozen).in_optimiser.size()) ==
          optimiser_parameters) {
        if (!named)
          notes.push_back(fmt::format("taken as {}, whose optimiser has as many parameters", trainer.task));
        return {trainer, frozen};
      }
  }
  fail("[{}] an optimiser of {} parameters, which none of the trainers{} has", path, optimiser_parameters,
       named ? " of that name" : "");
}

}  // namespace melete::spear_tts
