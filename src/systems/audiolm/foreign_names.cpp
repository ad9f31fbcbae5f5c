#include "systems/audiolm/foreign_names.h"

#include <regex>
#include <set>

#include "core/base/error.h"
#include "io/foreign_arguments.h"

namespace melete::audiolm_pytorch {

namespace {

using Json = nlohmann::ordered_json;

// Arguments that all three share. What depends on several of them is settled afterwards.
struct StageArguments {
  bool has_condition = false, audio_text = false, prefix = false, flash = false;
  int64_t cond_dim = 0;
};

ArgumentSetters stage_setters(StageConfig& c, StageArguments& a) {
  TransformerConfig& t = c.transformer;
  return {{"dim", argument_to(t.dim)},
          {"depth", argument_to(t.depth)},
          {"heads", argument_to(t.heads)},
          {"dim_head", argument_to(t.head_dim)},
          {"attn_dropout", argument_to(t.attention_dropout)},
          {"ff_dropout", argument_to(t.feed_forward_dropout)},
          {"grad_shrink_alpha", argument_to(t.gradient_shrink)},
          {"rel_pos_bias", argument_to(c.position_bias)},
          {"cond_drop_prob", argument_to(c.condition_drop)},
          {"has_condition", argument_to(a.has_condition)},
          {"audio_text_condition", argument_to(a.audio_text)},
          {"cond_as_self_attn_prefix", argument_to(a.prefix)},
          {"cond_dim", argument_to(a.cond_dim)},
          {"flash_attn", argument_to(a.flash)},
          {"t5_name", [](const Json&) {}}};
}

void settle(StageConfig& c, const StageArguments& a, int64_t text_dim) {
  const bool conditioned = a.has_condition || a.audio_text;
  c.transformer.condition = a.prefix ? "prefix" : conditioned ? "cross" : "none";
  c.text_dim = a.cond_dim > 0 ? a.cond_dim : a.audio_text ? c.transformer.dim : text_dim;
  c.unused_text_projection = true;
  if (a.flash) c.position_bias = false;
}

const std::vector<std::pair<std::regex, std::string>>& rules() {
  const auto rule = [](const char* ours, const char* theirs) { return std::pair(std::regex(ours), theirs); };
  static const std::vector<std::pair<std::regex, std::string>> table = {
      rule(R"(^transformer\.attention\.(\d+)\.(norm)\.weight$)", "transformer.layers.$1.0.$2.gamma"),
      rule(R"(^transformer\.cross\.(\d+)\.(norm|context_norm)\.weight$)", "transformer.layers.$1.1.$2.gamma"),
      rule(R"(^transformer\.attention\.(\d+)\.query\.)", "transformer.layers.$1.0.to_q."),
      rule(R"(^transformer\.attention\.(\d+)\.key_value\.)", "transformer.layers.$1.0.to_kv."),
      rule(R"(^transformer\.attention\.(\d+)\.output\.)", "transformer.layers.$1.0.to_out.0."),
      rule(R"(^transformer\.cross\.(\d+)\.null_key_value$)", "transformer.layers.$1.1.null_kv"),
      rule(R"(^transformer\.cross\.(\d+)\.query\.)", "transformer.layers.$1.1.to_q."),
      rule(R"(^transformer\.cross\.(\d+)\.key_value\.)", "transformer.layers.$1.1.to_kv."),
      rule(R"(^transformer\.cross\.(\d+)\.output\.)", "transformer.layers.$1.1.to_out.0."),
      rule(R"(^transformer\.feed_forward\.(\d+)\.norm\.weight$)", "transformer.layers.$1.2.0.gamma"),
      rule(R"(^transformer\.feed_forward\.(\d+)\.input\.)", "transformer.layers.$1.2.1."),
      rule(R"(^transformer\.feed_forward\.(\d+)\.inner_norm\.weight$)", "transformer.layers.$1.2.3.gamma"),
      rule(R"(^transformer\.feed_forward\.(\d+)\.output\.)", "transformer.layers.$1.2.5."),
      rule(R"(^transformer\.norm\.weight$)", "transformer.norm.gamma"),
      rule(R"(^text_projection\.)", "proj_text_embed."),
      rule(R"(^start$)", "start_token"),
      rule(R"(^embedding\.)", "semantic_embedding."),
      rule(R"(^logits\.)", "to_logits."),
      rule(R"(^(semantic|coarse|fine)_start$)", "$1_start_token"),
      rule(R"(^(semantic|coarse|fine)_embedding\.)", "$1_embedding."),
      rule(R"(^quantizer_embedding\.)", "coarse_quantize_embedding."),
      rule(R"(^(coarse|fine)_quantizer_embedding\.)", "$1_quantize_embedding."),
      rule(R"(^cross_bias$)", "cross_attn_bias"),
      rule(R"(^start_bias$)", "null_pos_bias"),
      rule(R"(^semantic_logits\.)", "to_semantic_logits."),
      rule(R"(^(coarse|fine)_logits$)", "$1_logit_weights"),
  };
  return table;
}

// The network of the first two stages ends with layer 3 and belongs to their transformer; that of the fine
// stage has three layers, with an activation between.
std::string bias_name(const std::string& layer, const std::string& leaf, bool fine) {
  const int number = std::stoi(layer);
  if (fine) return fmt::format("pos_bias_mlp.{}.{}", 2 * number, leaf);
  return fmt::format("transformer.rel_pos_bias.net.{}.{}{}", number, number < 3 ? "0." : "", leaf);
}

}  // namespace

bool is_norm_shift(const std::string& theirs) {
  return theirs.ends_with(".beta");
}

SemanticConfig semantic_config(const Json& arguments, int64_t text_dim) {
  SemanticConfig config;
  StageArguments more;
  auto setters = stage_setters(config.stage, more);
  setters["num_semantic_tokens"] = argument_to(config.semantic_tokens);
  apply_arguments(arguments, setters, "audiolm-pytorch", "SemanticTransformer");
  settle(config.stage, more, text_dim);
  return config;
}

CoarseConfig coarse_config(const Json& arguments, int64_t text_dim) {
  CoarseConfig config;
  StageArguments more;
  auto setters = stage_setters(config.stage, more);
  setters["num_semantic_tokens"] = argument_to(config.semantic_tokens);
  setters["codebook_size"] = argument_to(config.codebook_size);
  setters["num_coarse_quantizers"] = argument_to(config.quantizers);
  setters["project_semantic_logits"] = argument_to(config.predict_semantic);
  apply_arguments(arguments, setters, "audiolm-pytorch", "CoarseTransformer");
  settle(config.stage, more, text_dim);
  return config;
}

FineConfig fine_config(const Json& arguments, int64_t text_dim) {
  FineConfig config;
  config.positions_from_longest = true;
  StageArguments more;
  auto setters = stage_setters(config.stage, more);
  setters["codebook_size"] = argument_to(config.codebook_size);
  setters["num_coarse_quantizers"] = argument_to(config.coarse_quantizers);
  setters["num_fine_quantizers"] = argument_to(config.fine_quantizers);
  setters["project_coarse_logits"] = argument_to(config.predict_coarse);
  setters["pad_id"] = [](const Json& id) {
    require(id.get<int64_t>() < 0, "[audiolm-pytorch] padding is a negative id (-1 here), got pad_id {}",
            id.get<int64_t>());
  };
  apply_arguments(arguments, setters, "audiolm-pytorch", "FineTransformer");
  settle(config.stage, more, text_dim);
  return config;
}

std::string stage_name(const std::string& ours) {
  for (const auto& [pattern, replacement] : rules())
    if (std::regex_search(ours, pattern)) return std::regex_replace(ours, pattern, replacement);
  fail("[audiolm-pytorch] no name known for `{}`", ours);
}

std::vector<NamedPair> stage_pairs(torch::nn::Module& stage) {
  static const std::regex bias(R"(^position_bias\.layers\.(\d+)\.(\w+)$)");
  const auto parameters = stage.named_parameters();
  const bool fine = parameters.contains("fine_start");
  std::vector<NamedPair> pairs;
  for (const auto& item : parameters) {
    std::smatch match;
    const std::string& ours = item.key();
    if (ours.starts_with("text_encoder.")) continue;  // upstream has none of its own
    const bool of_bias = std::regex_match(ours, match, bias);
    pairs.push_back(
        {ours, of_bias ? bias_name(match.str(1), match.str(2), fine) : stage_name(ours), item.value()});
  }
  return pairs;
}

void load_stage(torch::nn::Module& stage, const TensorMap& state_dict) {
  const at::NoGradGuard no_grad;
  std::set<std::string> used;
  for (const NamedPair& pair : stage_pairs(stage)) {
    const auto found = state_dict.find(pair.theirs);
    require(found != state_dict.end(), "[audiolm-pytorch] the file has no `{}` (ours: `{}`)", pair.theirs,
            pair.ours);
    require(found->second.sizes() == pair.tensor.sizes(), "[audiolm-pytorch] `{}` has {} values, expected {}",
            pair.theirs, found->second.numel(), pair.tensor.numel());
    pair.tensor.copy_(found->second);
    used.insert(pair.theirs);
  }
  for (const auto& [name, tensor] : state_dict) {
    require(used.count(name) || is_norm_shift(name), "[audiolm-pytorch] `{}` has no place in this model",
            name);
    require(used.count(name) || !tensor.ne(0).any().item<bool>(),
            "[audiolm-pytorch] `{}` should be all zeros", name);
  }
}

TensorMap stage_state_dict(torch::nn::Module& stage) {
  TensorMap result;
  for (const NamedPair& pair : stage_pairs(stage)) {
    result[pair.theirs] = pair.tensor.detach();
    const std::string gain = ".gamma";
    if (pair.theirs.ends_with(gain))
      result[pair.theirs.substr(0, pair.theirs.size() - gain.size()) + ".beta"] = at::zeros_like(pair.tensor);
  }
  return result;
}

}  // namespace melete::audiolm_pytorch
