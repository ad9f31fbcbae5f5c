#include "systems/spear_tts/foreign_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "io/foreign_arguments.h"
#include "systems/spear_tts/training.h"

namespace melete::spear_tts {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kClipTokens = 49408;  // of the tokenizer that `use_openai_tokenizer` takes

struct Rule {
  std::regex ours;
  std::vector<std::string> theirs;
};

const std::vector<Rule>& rules() {
  const auto rule = [](const char* ours, std::vector<std::string> theirs) {
    return Rule{std::regex(ours), std::move(theirs)};
  };
  static const std::vector<Rule> table = {
      rule(R"(^speech\.embedding\.weight$)",
           {"semantic_token_emb.weight", "token_emb.speech.weight", "to_logits.speech.weight"}),
      rule(R"(^text\.embedding\.weight$)", {"token_emb.text.weight", "to_logits.text.weight"}),
      rule(R"(^(speech|text)\.start$)", {"start_token.$1"}),
      rule(R"(\.attention\.norm\.weight$)", {".0.norm.gamma"}),
      rule(R"(\.attention\.query\.)", {".0.to_q.0."}),
      rule(R"(\.attention\.key_value\.)", {".0.to_kv.0."}),
      rule(R"(\.attention\.output\.)", {".0.to_out."}),
      rule(R"(\.cross\.norm\.weight$)", {".1.norm.gamma"}),
      rule(R"(\.cross\.null_key_value$)", {".1.null_kv"}),
      rule(R"(\.cross\.query\.)", {".1.to_q.0."}),
      rule(R"(\.cross\.key_value\.)", {".1.to_kv.0."}),
      rule(R"(\.cross\.output\.)", {".1.to_out."}),
      rule(R"(^early_exit\.feed_forward\.norm\.weight$)", {"to_early_exit_semantic_logits.0.fn.0.gamma"}),
      rule(R"(^early_exit\.feed_forward\.input\.)", {"to_early_exit_semantic_logits.0.fn.1."}),
      rule(R"(^early_exit\.feed_forward\.output\.)", {"to_early_exit_semantic_logits.0.fn.4."}),
      rule(R"(^early_exit\.norm\.weight$)", {"to_early_exit_semantic_logits.1.gamma"}),
      rule(R"(^early_exit\.output\.)", {"to_early_exit_semantic_logits.2."}),
      rule(R"(\.feed_forward\.norm\.weight$)", {".2.0.gamma"}),
      rule(R"(\.feed_forward\.input\.)", {".2.1."}),
      rule(R"(\.feed_forward\.output\.)", {".2.4."}),
      rule(R"(^(encoder|decoder)\.norm\.weight$)", {"$1.final_norm.gamma"}),
  };
  return table;
}

std::string their_transformer(const std::string& name) {
  if (name.starts_with("encoder.")) return "source_transformer." + name.substr(8);
  if (name.starts_with("decoder.")) return "target_transformer." + name.substr(8);
  return name;
}

std::vector<std::string> their_names(const std::string& ours) {
  for (const Rule& rule : rules()) {
    if (!std::regex_search(ours, rule.ours)) continue;
    std::vector<std::string> names;
    for (const std::string& theirs : rule.theirs)
      names.push_back(their_transformer(std::regex_replace(ours, rule.ours, theirs)));
    return names;
  }
  fail("[spear-tts-pytorch] no name known for `{}`", ours);
}

// Every layer has the one rotation of its transformer.
ForeignTensor rotation_of(TransformerImpl& transformer, const std::string& ours) {
  ForeignTensor result{ours + ".frequencies", {}, transformer.frequencies};
  for (int64_t i = 0; i < transformer.config().depth; ++i)
    result.theirs.push_back(their_transformer(fmt::format("{}.layers.{}.0.rotary_emb.freqs", ours, i)));
  return result;
}

bool is_rotation(const std::string& theirs) {
  return theirs.ends_with(".rotary_emb.freqs");
}

// Ours come part by part; in theirs a learned key precedes all else of its layer's cross attention, and a
// rotation all else of its layer (as a parameter, which is listed once: of its transformer).
auto their_place(const std::string& name) {
  static const std::vector<std::string> parts = {"semantic_token_emb.", "token_emb.speech.",
                                                 "token_emb.text.",     "start_token.speech",
                                                 "start_token.text",    "to_logits.speech.",
                                                 "to_logits.text.",     "source_transformer.",
                                                 "target_transformer.", "to_early_exit_semantic_logits."};
  const auto part = std::find_if(parts.begin(), parts.end(),
                                 [&](const std::string& prefix) { return name.starts_with(prefix); });
  static const std::regex numbers(R"(^\w+\.layers\.(\d+)\.(\d+)\.)");
  std::smatch match;
  const bool in_layer = std::regex_search(name, match, numbers);
  const int64_t layer = in_layer ? std::stoll(match.str(1)) : INT64_MAX;
  const int64_t within = in_layer ? std::stoll(match.str(2)) : 0;
  const bool first = is_rotation(name) || name.ends_with("null_kv");
  return std::tuple(part - parts.begin(), layer, within, !first);
}

std::vector<ForeignTensor> in_their_order(TextToSemanticImpl& model) {
  std::vector<ForeignTensor> tensors = foreign_tensors(model);
  std::stable_sort(tensors.begin(), tensors.end(), [](const ForeignTensor& a, const ForeignTensor& b) {
    return their_place(a.theirs.front()) < their_place(b.theirs.front());
  });
  return tensors;
}

}  // namespace

ForeignSettings foreign_settings(const Json& arguments) {
  ForeignSettings s;
  s.model.text = {0, 0, true};
  s.model.speech = {0, -1, true};
  s.loss.as_upstream = true;
  bool clip_tokens = false, smooth = true;
  const auto means_nothing = [](const Json&) {};
  apply_arguments(arguments,
                  {{"dim", argument_to(s.model.dim)},
                   {"source_depth", argument_to(s.model.encoder_layers)},
                   {"target_depth", argument_to(s.model.decoder_layers)},
                   {"num_text_token_ids", argument_to(s.model.text.tokens)},
                   {"num_semantic_token_ids", argument_to(s.model.speech.tokens)},
                   {"use_openai_tokenizer", argument_to(clip_tokens)},
                   {"tokenizer_encode", means_nothing},
                   {"wav2vec", means_nothing},
                   {"dim_head", argument_to(s.model.head_dim)},
                   {"heads", argument_to(s.model.heads)},
                   {"target_kv_heads", argument_to(s.model.decoder_key_heads)},
                   {"attn_dropout", argument_to(s.model.attention_dropout)},
                   {"ff_mult", argument_to(s.model.feed_forward_multiplier)},
                   {"ff_dropout", argument_to(s.model.feed_forward_dropout)},
                   {"semantic_pad_id", argument_to(s.model.speech.padding)},
                   {"text_pad_id", argument_to(s.model.text.padding)},
                   {"autoset_semantic_eos_id", argument_to(s.model.speech.end)},
                   {"autoset_text_eos_id", argument_to(s.model.text.end)},
                   {"attn_flash", means_nothing},
                   {"cond_drop_prob", argument_to(s.model.condition_drop)},
                   {"target_early_exit_layer", argument_to(s.model.early_exit_layer)},
                   {"detach_early_exit_embed", argument_to(s.model.early_exit_detached)},
                   {"align_reg_loss_weight", argument_to(s.loss.alignment.weight)},
                   {"align_reg_use_logsumexp_pool", argument_to(smooth)},
                   {"align_reg_logsumexp_pool_temp", argument_to(s.loss.alignment.temperature)}},
                  "spear-tts-pytorch", "TextToSemantic");
  if (clip_tokens) s.model.text.tokens = kClipTokens;
  s.loss.alignment.pooling = smooth ? "logsumexp" : "max";
  require(s.model.text.tokens > 0 && s.model.speech.tokens > 0,
          "[spear-tts-pytorch] expected num_text_token_ids and num_semantic_token_ids");
  return s;
}

DeletionConfig foreign_deletion(const Json& arguments) {
  DeletionConfig deletion;
  deletion.as_upstream = true;
  const auto given = [&](const char* name) {
    return arguments.contains(name) && !arguments.at(name).is_null();
  };
  if (given("deletion_prob")) deletion.share = arguments["deletion_prob"];
  if (given("reconstruct_seq")) deletion.reconstruct = arguments["reconstruct_seq"];
  if (given("mask_id")) deletion.mask_token = arguments["mask_id"];
  return deletion;
}

SamplingConfig foreign_filter(const Json& arguments, int64_t classes) {
  SamplingConfig sampling;
  sampling.guidance = 1;
  sampling.filter = 0;
  const auto given = [](const Json& from, const char* key) {
    return from.contains(key) && !from.at(key).is_null();
  };
  const std::string name =
      given(arguments, "filter_logits_fn") ? arguments["filter_logits_fn"] : Json("top_k");
  const Json details = given(arguments, "filter_fn_kwargs") ? arguments["filter_fn_kwargs"] : Json::object();
  for (const auto& item : details.items())
    require(item.key() == "thres" || (item.key() == "k" && name == "top_k"),
            "[spear-tts-pytorch] {} has no argument `{}`", name, item.key());
  if (name == "top_p") {
    sampling.top_p = given(details, "thres") ? details["thres"].get<double>() : 0.9;
  } else {
    require(name == "top_k", "[spear-tts-pytorch] expected a filter top_k or top_p, got {}", name);
    const double share = given(details, "thres") ? details["thres"].get<double>() : 0.1;
    sampling.top_k = given(details, "k")
                         ? details["k"].get<int64_t>()
                         : static_cast<int64_t>(std::ceil(share * static_cast<double>(classes)));
  }
  return sampling;
}

std::vector<ForeignTensor> foreign_tensors(TextToSemanticImpl& model) {
  std::vector<ForeignTensor> tensors;
  for (const auto& item : model.named_parameters()) {
    const bool null = item.key().ends_with("null_key_value");  // theirs has a dimension for its one position
    tensors.push_back({item.key(), their_names(item.key()), null ? item.value().unsqueeze(2) : item.value()});
  }
  tensors.push_back(rotation_of(*model.encoder, "encoder"));
  tensors.push_back(rotation_of(*model.decoder, "decoder"));
  return tensors;
}

void load_state_dict(TextToSemanticImpl& model, const TensorMap& state) {
  const at::NoGradGuard no_grad;
  std::set<std::string> used;
  for (const ForeignTensor& own : foreign_tensors(model)) {
    const at::Tensor* first = nullptr;
    for (const std::string& name : own.theirs) {
      const auto found = state.find(name);
      require(found != state.end(), "[spear-tts-pytorch] the file has no `{}` (ours: `{}`)", name, own.ours);
      require(found->second.sizes() == own.tensor.sizes(), "[spear-tts-pytorch] `{}` is [{}], expected [{}]",
              name, fmt::join(found->second.sizes(), ", "), fmt::join(own.tensor.sizes(), ", "));
      if (first == nullptr) first = &found->second;
      require(found->second.equal(*first), "[spear-tts-pytorch] `{}` and `{}` are one tensor, but differ",
              name, own.theirs.front());
      used.insert(name);
    }
    own.tensor.copy_(*first);
  }
  for (const auto& [name, tensor] : state)
    require(used.count(name) > 0 || name.starts_with("wav2vec."),
            "[spear-tts-pytorch] `{}` has no place in this model", name);
}

std::vector<std::pair<std::string, ForeignTensor>> state_entries(TextToSemanticImpl& model) {
  std::vector<std::pair<std::string, ForeignTensor>> entries;
  for (const ForeignTensor& own : foreign_tensors(model))
    for (const std::string& name : own.theirs) entries.emplace_back(name, own);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return their_place(a.first) < their_place(b.first); });
  return entries;
}

TensorMap state_dict(TextToSemanticImpl& model) {
  TensorMap state;
  for (const ForeignTensor& own : foreign_tensors(model))
    for (const std::string& name : own.theirs) state[name] = own.tensor.detach();
  return state;
}

ForeignParameters foreign_parameters(TextToSemanticImpl& model, const Direction& direction,
                                     int64_t frozen_encoder_layers) {
  ForeignParameters result;
  for (const ForeignTensor& own : in_their_order(model)) {
    const std::string& name = own.theirs.front();
    // A shared rotation is frozen with the first layer.
    const bool with_layer = is_rotation(name) && own.ours.starts_with("encoder.")
                                ? is_trained("encoder.layers.0.", direction, frozen_encoder_layers)
                                : is_trained(own.ours, direction, frozen_encoder_layers);
    const bool trained = with_layer && !(is_rotation(name) && direction == kSpeechToSpeech);
    (trained ? result.trained : result.frozen).push_back(name);
    // The pretrainer's optimiser counts all parameters, the others' only what they train.
    if (trained || direction == kSpeechToSpeech) result.in_optimiser.push_back(name);
  }
  return result;
}

}  // namespace melete::spear_tts
