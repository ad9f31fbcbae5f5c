#include "systems/muse/foreign_names.h"

#include <fmt/ranges.h>

#include <cmath>
#include <regex>
#include <set>

#include "core/base/error.h"

namespace melete::muse_maskgit_pytorch {

namespace {

using Rules = std::vector<std::pair<std::regex, std::string>>;

Rules rules_of(std::initializer_list<std::pair<const char*, const char*>> table) {
  Rules rules;
  for (const auto& [ours, theirs] : table) rules.emplace_back(std::regex(ours), theirs);
  return rules;
}

std::string by_rules(const Rules& rules, const std::string& ours) {
  for (const auto& [pattern, replacement] : rules)
    if (std::regex_search(ours, pattern)) return std::regex_replace(ours, pattern, replacement);
  return {};
}

// Below one residual block or gated block.
std::string block_leaf(const std::string& ours, bool gated) {
  static const Rules residual = rules_of({{R"(^first\.)", "net.0."},
                                          {R"(^first_norm\.)", "net.1."},
                                          {R"(^second\.)", "net.3."},
                                          {R"(^second_norm\.)", "net.4."},
                                          {R"(^last\.)", "net.6."}});
  static const Rules gates = rules_of({{R"(^first\.)", "net.0."},
                                       {R"(^first_norm\.)", "net.2."},
                                       {R"(^second\.)", "net.3."},
                                       {R"(^second_norm\.)", "net.5."},
                                       {R"(^last\.)", "net.6."}});
  return by_rules(gated ? gates : residual, ours);
}

const Rules& quantizer_rules() {
  static const Rules table = rules_of({
      {R"(^quantizer\.groups\.0\.project_)", "quantizer.project_"},
      {R"(^quantizer\.groups\.0\.stages\.0\.codebook\.embedding$)", "quantizer._codebook.embed"},
      {R"(^quantizer\.groups\.0\.stages\.0\.codebook\.embedding_sum$)", "quantizer._codebook.embed_avg"},
      {R"(^quantizer\.groups\.0\.stages\.0\.codebook\.counts$)", "quantizer._codebook.cluster_size"},
      {R"(^quantizer\.groups\.0\.stages\.0\.codebook\.initialised$)", "quantizer._codebook.initted"},
      {R"(^quantizer\.groups\.0\.stages\.0\.codebook\.vectors_(mean|variance)$)",
       "quantizer._codebook.batch_$1"},
      {R"(^quantizer\.groups\.0\.stages\.0\.codebook\.codes_(mean|variance)$)",
       "quantizer._codebook.codebook_$1"},
      {R"(^quantizer\.groups\.0\.stages\.0\.codebook\.codes_begun$)",
       "quantizer._codebook.codebook_mean_needs_init"},
      {R"(^quantizer\.groups\.0\.stages\.0\.codebook\.vectors_begun$)", "quantizer._codebook.batch_mean"},
  });
  return table;
}

// Their encoder and decoder are flat lists: the encoder's first convolution, then layer by layer its halving
// and its blocks; the decoder's blocks and its doubling, deepest layer first, then the last convolution.
std::string vae_name(const std::string& ours, const muse::VqganVaeConfig& config) {
  const auto blocks = config.layer_blocks();
  const auto items_before = [&](int64_t layer, bool deepest_first) {
    int64_t items = 0;
    for (int64_t i = 0; i < layer; ++i)
      items += 1 + blocks[static_cast<size_t>(deepest_first ? config.layers - 1 - i : i)];
    return items;
  };
  std::smatch match;
  if (ours.starts_with("input.")) return "enc_dec.encoders.0." + ours.substr(6);
  if (ours.starts_with("output."))
    return fmt::format("enc_dec.decoders.{}.{}", items_before(config.layers, true), ours.substr(7));
  if (!std::regex_match(ours, match, std::regex(R"((en|de)coder\.(\d+)\.(?:blocks\.(\d+)\.)?(.+))")))
    return by_rules(quantizer_rules(), ours);
  const bool decodes = match.str(1) == "de", in_block = match[3].matched;
  const int64_t layer = std::stoll(match.str(2)), block = in_block ? std::stoll(match.str(3)) : 0;
  const std::string list = decodes ? "enc_dec.decoders" : "enc_dec.encoders";
  // Halvings stand before the blocks of their layer, doublings behind.
  const int64_t first = items_before(layer, decodes) + (decodes ? 0 : 1);
  if (in_block)
    return fmt::format("{}.{}.{}", list, first + block + (decodes ? 0 : 1),
                       block_leaf(match.str(4), decodes));
  const int64_t behind = decodes ? blocks[static_cast<size_t>(config.layers - 1 - layer)] : 0;
  const std::string leaf = match.str(4).substr(match.str(4).find('.') + 1);
  return fmt::format("{}.{}.0.{}", list, first + behind, leaf);
}

std::string discriminator_name(const std::string& ours) {
  std::smatch match;
  if (std::regex_match(ours, match, std::regex(R"(layers\.(\d+)\.(down|norm)\.(\w+))")))
    return fmt::format("layers.{}.{}.{}", std::stoll(match.str(1)) + 1, match.str(2) == "down" ? 0 : 1,
                       match.str(3));
  static const Rules table = rules_of(
      {{R"(^input\.)", "layers.0.0."}, {R"(^hidden\.)", "to_logits.0."}, {R"(^output\.)", "to_logits.2."}});
  return by_rules(table, ours);
}

std::string transformer_name(const std::string& ours) {
  static const Rules table = rules_of({
      {R"(^token_embedding\.)", "token_emb."},
      {R"(^position_embedding\.)", "pos_emb."},
      {R"(^attention\.(\d+)\.)", "transformer_blocks.layers.$1.0."},
      {R"(^cross_attention\.(\d+)\.)", "transformer_blocks.layers.$1.1."},
      {R"(^feed_forward\.(\d+)\.norm\.weight$)", "transformer_blocks.layers.$1.2.0.gamma"},
      {R"(^feed_forward\.(\d+)\.input\.)", "transformer_blocks.layers.$1.2.1."},
      {R"(^feed_forward\.(\d+)\.inner_norm\.weight$)", "transformer_blocks.layers.$1.2.3.gamma"},
      {R"(^feed_forward\.(\d+)\.output\.)", "transformer_blocks.layers.$1.2.4."},
      {R"(^norm\.weight$)", "transformer_blocks.norm.gamma"},
      {R"(^logits\.)", "to_logits."},
      {R"(^text_projection\.)", "text_embed_proj."},
      {R"(^self_condition\.norm\.weight$)", "self_cond_to_init_embed.0.gamma"},
      {R"(^self_condition\.input\.)", "self_cond_to_init_embed.1."},
      {R"(^self_condition\.inner_norm\.weight$)", "self_cond_to_init_embed.3.gamma"},
      {R"(^self_condition\.output\.)", "self_cond_to_init_embed.4."},
  });
  static const Rules attention = rules_of({{R"(\.norm\.weight$)", ".norm.gamma"},
                                           {R"(\.query\.)", ".to_q."},
                                           {R"(\.key_value\.)", ".to_kv."},
                                           {R"(\.output\.)", ".to_out."},
                                           {R"(\.null_key_value$)", ".null_kv"},
                                           {R"(\.query_gain$)", ".q_scale"},
                                           {R"(\.key_gain$)", ".k_scale"}});
  const std::string name = by_rules(table, ours);
  if (!ours.starts_with("attention.") && !ours.starts_with("cross_attention.")) return name;
  return by_rules(attention, name);
}

NamedPair::Form form_of(const std::string& ours) {
  const bool gated = ours.starts_with("feed_forward.") || ours.starts_with("self_condition.");
  if (gated && ours.ends_with(".input.weight")) return NamedPair::Form::gate_first;
  if (ours.ends_with(".codebook.codes_begun")) return NamedPair::Form::inverted;
  if (ours.ends_with(".codebook.vectors_begun")) return NamedPair::Form::presence;
  return NamedPair::Form::same;
}

// Their codebooks have a dimension for heads, moments of codes one for the codes, the learned pair of an
// attention one for its only position.
std::vector<int64_t> their_shape(const std::string& theirs, const at::Tensor& ours, int64_t books) {
  if (theirs.ends_with("null_kv")) return {2, ours.size(1), 1, ours.size(2)};
  if (std::regex_search(theirs, std::regex(R"(_codebook\.(embed|embed_avg)$)")))
    return {books, ours.size(0) / books, ours.size(1)};
  if (theirs.ends_with("_codebook.cluster_size")) return {books, ours.size(0) / books};
  if (std::regex_search(theirs, std::regex(R"(_codebook\.\w+_(mean|variance)$)")))
    return {books, 1, ours.size(1)};
  return ours.sizes().vec();
}

template <class Name>
std::vector<NamedPair> pairs_of(torch::nn::Module& module, const Name& their_name, int64_t books = 1) {
  std::vector<NamedPair> pairs;
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      const std::string& ours = item.key();
      const std::string theirs = their_name(ours);
      require(!theirs.empty(), "[muse-maskgit-pytorch] no name known for `{}`", ours);
      const NamedPair::Form form = form_of(ours);
      pairs.push_back({ours, theirs, item.value(),
                       form == NamedPair::Form::presence ? std::vector<int64_t>{}
                                                         : their_shape(theirs, item.value(), books),
                       form});
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return pairs;
}

void append(std::vector<NamedPair>& pairs, const std::vector<NamedPair>& more, const std::string& ours,
            const std::string& theirs) {
  for (NamedPair pair : more) {
    pair.ours = ours + pair.ours;
    pair.theirs = theirs + pair.theirs;
    pairs.push_back(pair);
  }
}

// What a state_dict may hold besides: tables that we compute, norms' zero shifts, a norm that upstream never
// uses, and the self-conditioning of a transformer that has none.
bool derived(const std::string& theirs) {
  static const std::regex pattern(
      R"((^|\.)quantizer\.mask$|\.beta$|^((transformer|token_critic|token_critic\.net)\.)?norm\.gamma$)"
      R"(|(^|\.)self_cond_to_init_embed\.|_needs_init$)");
  return std::regex_search(theirs, pattern);
}

at::Tensor swapped(const at::Tensor& rows) {
  const auto halves = rows.chunk(2, 0);
  return at::cat({halves[1], halves[0]});
}

void copy_into(TensorMap& target, const TensorMap& from, const std::string& prefix) {
  for (const auto& [name, tensor] : from) target[prefix + name] = tensor;
}

TensorMap state_of(const std::vector<NamedPair>& pairs) {
  TensorMap state;
  for (const NamedPair& pair : pairs) {
    if (pair.form == NamedPair::Form::presence) continue;
    state[pair.theirs] = pair.as_theirs(pair.tensor.detach());
    if (pair.theirs.ends_with(".gamma"))
      state[pair.theirs.substr(0, pair.theirs.size() - 5) + "beta"] = at::zeros_like(pair.tensor);
  }
  return state;
}

TensorMap transformer_state(muse::MaskGitTransformerImpl& transformer) {
  TensorMap state = state_of(transformer_pairs(transformer));
  const int64_t dim = transformer.config().dim, inner = dim * 4 * 2 / 3;
  state["norm.gamma"] = at::ones({dim});
  state["norm.beta"] = at::zeros({dim});
  if (transformer.config().self_condition) return state;
  const std::string unused = "self_cond_to_init_embed.";
  state[unused + "0.gamma"] = at::ones({dim});
  state[unused + "0.beta"] = at::zeros({dim});
  state[unused + "1.weight"] = at::zeros({2 * inner, dim});
  state[unused + "3.gamma"] = at::ones({inner});
  state[unused + "3.beta"] = at::zeros({inner});
  state[unused + "4.weight"] = at::zeros({dim, inner});
  return state;
}

}  // namespace

at::Tensor NamedPair::as_theirs(const at::Tensor& in_our_order) const {
  if (form == Form::gate_first) return swapped(in_our_order);
  if (form == Form::inverted) return 1 - in_our_order;
  return in_our_order.reshape(their_shape);
}

at::Tensor NamedPair::as_ours(const at::Tensor& in_their_order) const {
  if (form == Form::presence) return at::ones_like(tensor);
  const at::Tensor shaped = in_their_order.reshape(tensor.sizes());
  if (form == Form::inverted) return 1 - shaped;
  return form == Form::gate_first ? swapped(shaped) : shaped;
}

int64_t text_dim(const TensorMap& state_dict, const std::string& prefix) {
  const auto projection = state_dict.find(prefix + "text_embed_proj.weight");
  if (projection != state_dict.end()) return projection->second.size(1);
  const auto embedding = state_dict.find(prefix + "token_emb.weight");
  require(embedding != state_dict.end(), "[muse-maskgit-pytorch] the file has no `{}token_emb.weight`",
          prefix);
  return embedding->second.size(1);
}

std::vector<NamedPair> vae_pairs(muse::VqganVaeImpl& vae) {
  const QuantizerConfig& q = vae.config().quantizer;
  return pairs_of(
      vae, [&](const std::string& ours) { return vae_name(ours, vae.config()); },
      q.separate_codebooks ? q.codebooks : 1);
}

std::vector<NamedPair> discriminator_pairs(muse::PictureDiscriminatorImpl& discriminator) {
  return pairs_of(discriminator, discriminator_name);
}

std::vector<NamedPair> vqgan_pairs(muse::VqganImpl& vqgan) {
  std::vector<NamedPair> pairs;
  append(pairs, vae_pairs(*vqgan.vae), "vae.", "");
  if (vqgan.has_discriminator())
    append(pairs, discriminator_pairs(*vqgan.discriminator), "discriminator.", "discr.");
  return pairs;
}

std::vector<NamedPair> transformer_pairs(muse::MaskGitTransformerImpl& transformer) {
  return pairs_of(transformer, transformer_name);
}

std::vector<NamedPair> maskgit_pairs(muse::MaskGitImpl& maskgit) {
  std::vector<NamedPair> pairs;
  append(pairs, transformer_pairs(*maskgit.transformer), "transformer.", "transformer.");
  if (!maskgit.critic.is_empty())
    append(pairs, transformer_pairs(*maskgit.critic), "critic.", "token_critic.");
  if (!maskgit.self_critic.is_empty()) {
    append(pairs, pairs_of(*maskgit.self_critic, [](const std::string& ours) { return ours; }),
           "self_critic.", "token_critic.to_pred.");
  }
  return pairs;
}

TensorMap part_of(const TensorMap& state_dict, const std::string& prefix) {
  TensorMap part;
  for (const auto& [name, tensor] : state_dict)
    if (name.starts_with(prefix)) part[name.substr(prefix.size())] = tensor;
  return part;
}

void load(const std::vector<NamedPair>& pairs, const TensorMap& state_dict) {
  const at::NoGradGuard no_grad;
  std::set<std::string> used;
  for (const NamedPair& pair : pairs) {
    const auto found = state_dict.find(pair.theirs);
    // An affine codebook's averages of the vectors are there once there were vectors.
    if (found == state_dict.end() && pair.theirs.find("_codebook.batch_") != std::string::npos) continue;
    require(found != state_dict.end(), "[muse-maskgit-pytorch] the file has no `{}` (ours: `{}`)",
            pair.theirs, pair.ours);
    require(pair.form == NamedPair::Form::presence || found->second.sizes() == pair.their_shape,
            "[muse-maskgit-pytorch] `{}` has shape [{}], expected [{}]", pair.theirs,
            fmt::join(found->second.sizes(), ", "), fmt::join(pair.their_shape, ", "));
    pair.tensor.copy_(pair.as_ours(found->second));
    used.insert(pair.theirs);
  }
  for (const auto& [name, tensor] : state_dict)
    require(used.count(name) > 0 || derived(name), "[muse-maskgit-pytorch] `{}` has no place in this model",
            name);
}

void load_vae(muse::VqganVaeImpl& vae, const TensorMap& state_dict) {
  TensorMap own;
  for (const auto& [name, tensor] : state_dict)
    if (!name.starts_with("discr.")) own[name] = tensor;
  load(vae_pairs(vae), own);
}

void load_maskgit(muse::MaskGitImpl& maskgit, const TensorMap& state_dict) {
  TensorMap own;
  for (const auto& [name, tensor] : state_dict) {
    // The autoencoders are loaded by themselves; a self-critic holds the transformer a second time.
    if (name.starts_with("vae.") || name.starts_with("cond_vae.")) continue;
    if (name.starts_with("token_critic.net.")) continue;
    own[name] = tensor;
  }
  load(maskgit_pairs(maskgit), own);
}

TensorMap vae_state_dict(muse::VqganVaeImpl& vae) {
  TensorMap state = state_of(vae_pairs(vae));
  const QuantizerConfig& q = vae.config().quantizer;
  if (q.kind == "lfq") {
    const auto bits = static_cast<int64_t>(std::log2(static_cast<double>(q.codebook_size)));
    state["quantizer.mask"] = at::pow(2, at::arange(bits - 1, -1, -1, at::kLong));
  }
  return state;
}

TensorMap vqgan_state_dict(muse::VqganImpl& vqgan) {
  TensorMap state = vae_state_dict(*vqgan.vae);
  if (vqgan.has_discriminator())
    copy_into(state, state_of(discriminator_pairs(*vqgan.discriminator)), "discr.");
  return state;
}

TensorMap maskgit_state_dict(muse::MaskGitImpl& maskgit, muse::VqganVae vae, muse::VqganVae condition_vae) {
  TensorMap state;
  copy_into(state, vae_state_dict(*vae), "vae.");
  copy_into(state, vae_state_dict(condition_vae.is_empty() ? *vae : *condition_vae), "cond_vae.");
  copy_into(state, transformer_state(*maskgit.transformer), "transformer.");
  if (!maskgit.critic.is_empty()) copy_into(state, transformer_state(*maskgit.critic), "token_critic.");
  if (!maskgit.self_critic.is_empty()) {
    copy_into(state, transformer_state(*maskgit.transformer), "token_critic.net.");
    state["token_critic.to_pred.weight"] = maskgit.self_critic->weight.detach();
    state["token_critic.to_pred.bias"] = maskgit.self_critic->bias.detach();
  }
  return state;
}

}  // namespace melete::muse_maskgit_pytorch
