#include "systems/audiolm/foreign_files.h"

#include <algorithm>

#include "core/base/error.h"
#include "io/foreign_weights.h"
#include "systems/soundstream/foreign_files.h"
#include "train/exporter.h"

namespace melete::audiolm_pytorch {

namespace {

using Json = nlohmann::ordered_json;

int64_t size_of(const TensorMap& state, const std::string& name, int64_t dimension) {
  return weight_size(state, name, dimension, "audiolm-pytorch");
}

// What all three have: their transformer.
Json transformer_arguments(const TensorMap& state, const std::string& start, const std::string& bias) {
  for (const auto& [name, tensor] : state)
    require(name.find(".branch.") == std::string::npos,
            "[audiolm-pytorch] `{}`: this transformer has hyper connections, which melete has not; files of "
            "audiolm-pytorch 2.0 can be read",
            name);
  Json made;
  const int64_t dim = size_of(state, start, 0);
  const int64_t depth = numbered_below(state, "transformer.layers.");
  const std::string first = "transformer.layers.0.";
  const int64_t pairs = size_of(state, first + "0.to_kv.weight", 0);
  const int64_t inner = size_of(state, first + "0.to_q.weight", 0);
  require(
      pairs % 2 == 0 && inner % (pairs / 2) == 0,
      "[audiolm-pytorch] `{0}0.to_q.weight` has {1} rows and `{0}0.to_kv.weight` {2}: not a number of heads",
      first, inner, pairs);
  // Before memory is taken for a model of this size, its largest weights must be there.
  for (int64_t i = 0; i < depth; ++i)
    for (const char* weight : {"0.to_q.weight", "2.1.weight"})
      require(size_of(state, fmt::format("transformer.layers.{}.{}", i, weight), 1) == dim,
              "[audiolm-pytorch] `transformer.layers.{}.{}` has {} columns, but `{}` has {} values", i,
              weight, size_of(state, fmt::format("transformer.layers.{}.{}", i, weight), 1), start, dim);
  made["dim"] = dim;
  made["depth"] = depth;
  made["dim_head"] = pairs / 2;
  made["heads"] = inner / (pairs / 2);
  made["rel_pos_bias"] = find_weight(state, bias) != nullptr;
  // Text embeddings as wide as the model are not projected.
  made["cond_dim"] =
      find_weight(state, "proj_text_embed.weight") ? size_of(state, "proj_text_embed.weight", 1) : dim;
  if (find_weight(state, first + "1.to_q.weight")) made["has_condition"] = true;
  return made;
}

// Of a table whose columns are as many as the model is wide.
int64_t rows_of(const TensorMap& state, const std::string& name, const Json& made) {
  const int64_t dim = made["dim"].get<int64_t>();
  require(size_of(state, name, 1) == dim, "[audiolm-pytorch] `{}` has {} columns, expected {}", name,
          size_of(state, name, 1), dim);
  return size_of(state, name, 0);
}

Json arguments_from_weights(const std::string& kind, const TensorMap& state) {
  const std::string distance = "transformer.rel_pos_bias.net.0.0.weight";
  if (kind == "semantic") {
    Json made = transformer_arguments(state, "start_token", distance);
    made["num_semantic_tokens"] = rows_of(state, "semantic_embedding.weight", made) - 1;
    return made;
  }
  if (kind == "coarse") {
    Json made = transformer_arguments(state, "semantic_start_token", distance);
    made["num_semantic_tokens"] = rows_of(state, "semantic_embedding.weight", made) - 1;
    made["codebook_size"] = size_of(state, "coarse_logit_weights", 1) - 1;
    made["num_coarse_quantizers"] = size_of(state, "coarse_logit_weights", 0);
    made["project_semantic_logits"] = find_weight(state, "to_semantic_logits.weight") != nullptr;
    return made;
  }
  require(kind == "fine", "[audiolm-pytorch] no transformer is called `{}`", kind);
  Json made = transformer_arguments(state, "fine_start_token", "pos_bias_mlp.0.weight");
  made["codebook_size"] = size_of(state, "fine_logit_weights", 1);
  const int64_t size = made["codebook_size"].get<int64_t>();
  made["num_coarse_quantizers"] = rows_of(state, "coarse_embedding.weight", made) / size;
  made["num_fine_quantizers"] = rows_of(state, "fine_embedding.weight", made) / size;
  made["project_coarse_logits"] = find_weight(state, "coarse_logit_weights") != nullptr;
  return made;
}

bool is_true(const Json& arguments, const char* name) {
  return arguments.contains(name) && arguments[name].is_boolean() && arguments[name].get<bool>();
}

Json transformer_arguments(const StageConfig& config) {
  const TransformerConfig& t = config.transformer;
  return {{"dim", t.dim},
          {"depth", t.depth},
          {"heads", t.heads},
          {"dim_head", t.head_dim},
          {"attn_dropout", t.attention_dropout},
          {"ff_dropout", t.feed_forward_dropout},
          {"grad_shrink_alpha", t.gradient_shrink},
          {"rel_pos_bias", config.position_bias},
          {"cond_drop_prob", config.condition_drop},
          {"has_condition", config.conditioned()},
          {"cond_as_self_attn_prefix", t.condition == "prefix"},
          // A model without a projection is one whose embeddings need none.
          {"cond_dim", config.conditioned() || config.unused_text_projection ? config.text_dim : t.dim}};
}

}  // namespace

Json stage_arguments_of_file(const std::string& kind, const TensorMap& state, const Json& given,
                             std::vector<std::string>& notes) {
  Json arguments = arguments_from_weights(kind, state);
  check_against_weights(given, arguments, "the given arguments say");
  const bool cross = arguments.contains("has_condition"), prefix = is_true(given, "cond_as_self_attn_prefix");
  require(!cross || !prefix,
          "[audiolm-pytorch] cond_as_self_attn_prefix was given, but the weights have cross attention");
  require(cross || prefix || !(is_true(given, "has_condition") || is_true(given, "audio_text_condition")),
          "[audiolm-pytorch] a condition was given, but the weights have no cross attention; try "
          "cond_as_self_attn_prefix=true");
  for (const auto& [name, value] : given.items()) arguments[name] = value;
  std::string defaults;
  for (const char* name : {"attn_dropout", "ff_dropout", "grad_shrink_alpha", "cond_drop_prob"})
    if (!arguments.contains(name)) defaults += fmt::format("{}{}", defaults.empty() ? "" : ", ", name);
  if (!defaults.empty())
    notes.push_back(fmt::format(
        "the file holds no settings: sizes were taken from its weights; {} are upstream's defaults",
        defaults));
  if (!cross && !given.contains("cond_as_self_attn_prefix"))
    notes.push_back(
        "weights do not tell whether text comes in as a prefix: taken as a model without text "
        "(cond_as_self_attn_prefix=true says otherwise)");
  return arguments;
}

Json stage_arguments(const SemanticConfig& config) {
  Json made = transformer_arguments(config.stage);
  made["num_semantic_tokens"] = config.semantic_tokens;
  return made;
}

Json stage_arguments(const CoarseConfig& config) {
  Json made = transformer_arguments(config.stage);
  made["num_semantic_tokens"] = config.semantic_tokens;
  made["codebook_size"] = config.codebook_size;
  made["num_coarse_quantizers"] = config.quantizers;
  made["project_semantic_logits"] = config.predict_semantic;
  return made;
}

Json stage_arguments(const FineConfig& config) {
  Json made = transformer_arguments(config.stage);
  made["codebook_size"] = config.codebook_size;
  made["num_coarse_quantizers"] = config.coarse_quantizers;
  made["num_fine_quantizers"] = config.fine_quantizers;
  made["project_coarse_logits"] = config.predict_coarse;
  return made;
}

void sort_as_theirs(std::vector<std::string>& names) {
  static const std::vector<std::string> order = {
      "start_token", "semantic_start_token", "coarse_start_token", "fine_start_token", "cross_attn_bias",
      "null_pos_bias", "coarse_logit_weights", "fine_logit_weights", "semantic_embedding", "coarse_embedding",
      "fine_embedding", "coarse_quantize_embedding", "fine_quantize_embedding", "proj_text_embed",
      "transformer", "pos_bias_mlp", "to_semantic_logits", "to_logits",
      // inside the transformer
      "layers", "rel_pos_bias", "null_kv", "norm", "context_norm", "to_q", "to_kv", "to_out", "net", "gamma",
      "beta", "weight", "bias"};
  sort_as_registered(names, order);
}

}  // namespace melete::audiolm_pytorch
