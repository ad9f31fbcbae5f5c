// AudioLM's transformers: logits with gradients, losses of their training wrappers, generation.
#include <torch/autograd.h>

#include <cmath>

#include "core/base/error.h"
#include "golden.h"
#include "systems/audiolm/foreign_names.h"
#include "systems/audiolm/stage_losses.h"
#include "systems/audiolm/stages.h"

namespace melete::golden::cases_stages {

namespace {

using nlohmann::ordered_json;
using namespace audiolm_pytorch;

const std::string kOwnPrefix = "transformer.", kCodecPrefix = "codec.";

// Where a file holds a codec, too, both stand below a prefix.
TensorMap own_weights(const Case& c) {
  return below(c.weights, kCodecPrefix).empty() ? c.weights : below(c.weights, kOwnPrefix);
}

// Any negative id may mean padding there.
at::Tensor token_ids(const Case& c, const std::string& name) {
  const at::Tensor& given = c.in(name);
  return given.masked_fill(given.lt(0), kPadding);
}

template <class Model, class Config>
Model build(const Case& c, Config config, const ordered_json& arguments) {
  const TensorMap weights = own_weights(c);
  Model model(config(arguments, text_dim(weights)));
  load_stage(*model, weights);
  model->train(c.json.value("mode", "eval") == "train");
  return model;
}

// Through text= their models mask padding and drop conditions; with text_embeds= only the coarse one does.
Condition condition(const Case& c, bool coarse) {
  if (c.has("in.text_embeds_from_t5")) return masked_condition(c.in("text_embeds_from_t5"));
  if (!c.has("in.text_embeds")) return {};
  const bool as_text = coarse || c.says("came through text=");
  return as_text ? masked_condition(c.in("text_embeds")) : Condition{c.in("text_embeds"), {}};
}

using NamedLogits = std::vector<std::pair<std::string, at::Tensor>>;

// Scale 1 is one pass; another is a pass with and one without condition.
template <class Forward>
NamedLogits guided(double scale, StagePass pass, bool conditioned, Forward forward) {
  NamedLogits with = forward(pass);
  if (scale == 1 || !conditioned) return with;
  pass.condition_drop = 1;
  const NamedLogits without = forward(pass);
  for (size_t i = 0; i < with.size(); ++i)
    with[i].second = without[i].second + (with[i].second - without[i].second) * scale;
  return with;
}

template <class Forward>
void check_logits(const Case& c, Checker& check, StageImpl& stage, StagePass pass, Forward forward) {
  const NamedLogits logits = forward(pass);
  at::Tensor loss;
  for (const auto& [name, value] : logits) {
    check.close(name, value, c.out(name));
    const at::Tensor part = at::log_softmax(value, -1).select(-1, 1).mean() + 0.01 * value.square().mean();
    loss = loss.defined() ? loss + part : part;
  }
  check.close("loss", loss, c.out("loss"));
  loss.backward();
  for (const auto& pair : stage_pairs(stage))
    if (c.has("grad." + pair.theirs))
      check.gradient("grad." + pair.theirs, pair.tensor.grad(), c.get("grad." + pair.theirs));

  const at::NoGradGuard no_grad;
  const std::string tag = "cond_scale_";
  for (const auto& [key, about] : c.json.at("outputs").items()) {
    const std::string name = key.substr(4);  // without "out."
    if (!name.starts_with(tag)) continue;
    const auto dot = name.rfind('.');
    const double scale = std::stod(name.substr(tag.size(), dot - tag.size()));
    bool found = false;
    for (const auto& [label, value] : guided(scale, pass, stage.stage().conditioned(), forward))
      if (label == name.substr(dot + 1)) {
        check.close(name, value, c.out(name));
        found = true;
      }
    if (!found) check.fail("nothing here makes " + name);
  }
}

at::Tensor attention_mask(const Case& c, bool with_start) {
  if (!c.has("in.self_attn_mask")) return {};
  const at::Tensor mask = c.in("self_attn_mask");
  return with_start ? at::constant_pad_nd(mask, {1, 0}, 1) : mask;
}

void check_semantic(const Case& c, Checker& check) {
  auto model = build<SemanticTransformer>(c, semantic_config, c.config);
  StagePass pass;
  pass.condition = condition(c, false);
  pass.seen = attention_mask(c, true);
  check_logits(c, check, *model, pass, [&](const StagePass& p) {
    return NamedLogits{{"logits", model(c.in("ids"), p)}};
  });
}

void check_coarse(const Case& c, Checker& check) {
  auto model = build<CoarseTransformer>(c, coarse_config, c.config);
  StagePass pass;
  pass.condition = condition(c, true);
  pass.seen = attention_mask(c, false);
  check_logits(c, check, *model, pass, [&](const StagePass& p) {
    const CoarseLogits logits =
        model(token_ids(c, "semantic_token_ids").flatten(1), token_ids(c, "coarse_token_ids").flatten(1), p);
    NamedLogits result;
    if (logits.semantic.defined()) result.emplace_back("semantic_logits", logits.semantic);
    result.emplace_back("coarse_logits", logits.coarse);
    return result;
  });
}

// The fine transformer hides what has its pad_id, as it hides our padding.
FineTransformer build_fine(const Case& c, ordered_json arguments) {
  arguments.erase("pad_id");
  return build<FineTransformer>(c, fine_config, arguments);
}

at::Tensor coarse_ids(const ordered_json& transformer, const at::Tensor& ids) {
  const int64_t pad_id = transformer.value("pad_id", kPadding);
  return pad_id < 0 ? ids : ids.masked_fill(ids.eq(pad_id), kPadding);
}

void check_fine(const Case& c, Checker& check) {
  auto model = build_fine(c, c.config);
  StagePass pass;
  pass.condition = condition(c, false);
  pass.seen = attention_mask(c, false);
  check_logits(c, check, *model, pass, [&](const StagePass& p) {
    const FineLogits logits = model(coarse_ids(c.config, token_ids(c, "coarse_token_ids").flatten(1)),
                                    token_ids(c, "fine_token_ids").flatten(1), p);
    NamedLogits result;
    if (logits.coarse.defined()) result.emplace_back("coarse_logits", logits.coarse);
    result.emplace_back("fine_logits", logits.fine);
    return result;
  });
}

void expect_wrapper(const ordered_json& wrapper) {
  expect_only(wrapper, {"unique_consecutive", "mask_prob", "pad_id", "semantic_cross_entropy_loss_weight",
                        "coarse_cross_entropy_loss_weight"});
}

// Any negative id is our own padding; another one only stays out of the loss.
std::optional<int64_t> ignored_id(const ordered_json& wrapper) {
  const int64_t id = wrapper.value("pad_id", kPadding);
  return id < 0 ? std::optional<int64_t>() : id;
}

StageLossConfig loss_config(const ordered_json& wrapper) {
  expect_wrapper(wrapper);
  StageLossConfig config;
  config.unique_consecutive = wrapper.value("unique_consecutive", true);
  config.forget = wrapper.value("mask_prob", 0.15);
  config.first_part_weight = wrapper.value("semantic_cross_entropy_loss_weight",
                                           wrapper.value("coarse_cross_entropy_loss_weight", 1.0));
  return config;
}

void check_losses(const Case& c, Checker& check, StageImpl& stage, const StageLosses& losses,
                  const std::string& first) {
  check.close("loss", losses.total, c.out("loss"));
  if (c.has("out.logits")) check.close("logits", losses.logits, c.out("logits"));
  const std::string second = first == "semantic" ? "coarse" : "fine";
  if (c.has("out." + second + "_logits"))
    check.close(second + "_logits", losses.logits, c.out(second + "_logits"));
  if (c.has("out." + first + "_logits") && c.has("out." + second + "_logits"))
    check.close(first + "_logits", losses.first_logits, c.out(first + "_logits"));
  losses.total.backward();
  for (const auto& pair : stage_pairs(stage))
    if (c.has("grad." + pair.theirs))
      check.gradient("grad." + pair.theirs, pair.tensor.grad(), c.get("grad." + pair.theirs));
}

StageInput loss_input(const Case& c, const StageImpl& stage, bool coarse, Draws& draws) {
  StageInput input;
  input.end = input.forget = c.json.value("mode", "eval") == "train";
  input.keep_padding = true;
  input.condition = condition(c, coarse);
  // Theirs drop conditions in eval mode, too, unless they are told not to.
  const auto told = c.json.value("cond_drop_prob", ordered_json());
  input.condition_drop = told.is_null() ? stage.stage().condition_drop : told.get<double>();
  input.ignored = ignored_id(c.config.at("wrapper"));
  input.draws = &draws;
  return input;
}

void check_semantic_loss(const Case& c, Checker& check) {
  auto model = build<SemanticTransformer>(c, semantic_config, c.config.at("transformer"));
  ReplayDraws draws(c, "rand.");
  StageInput input = loss_input(c, *model, false, draws);
  input.semantic = token_ids(c, "semantic_token_ids").flatten(1);
  check_losses(c, check, *model, semantic_losses(model, input, loss_config(c.config.at("wrapper"))),
               "semantic");
}

void check_coarse_loss(const Case& c, Checker& check) {
  auto model = build<CoarseTransformer>(c, coarse_config, c.config.at("transformer"));
  ReplayDraws draws(c, "rand.");
  StageInput input = loss_input(c, *model, true, draws);
  input.semantic = token_ids(c, "semantic_token_ids").flatten(1);
  input.acoustic = token_ids(c, "coarse_token_ids").flatten(1);
  check_losses(c, check, *model, coarse_losses(model, input, loss_config(c.config.at("wrapper"))),
               "semantic");
}

void check_fine_loss(const Case& c, Checker& check) {
  const ordered_json& transformer = c.config.at("transformer");
  auto model = build_fine(c, transformer);
  ReplayDraws draws(c, "rand.");
  StageInput input = loss_input(c, *model, false, draws);
  const FineConfig& sizes = model->config();
  at::Tensor coarse, fine;
  if (c.has("in.token_ids")) {
    const at::Tensor both = token_ids(c, "token_ids");
    const int64_t groups = both.size(2) / (sizes.coarse_quantizers + sizes.fine_quantizers);
    coarse = both.narrow(2, 0, groups * sizes.coarse_quantizers);
    fine = both.narrow(2, groups * sizes.coarse_quantizers, groups * sizes.fine_quantizers);
  } else {
    coarse = token_ids(c, "coarse_token_ids");
    fine = token_ids(c, "fine_token_ids");
  }
  const int64_t hidden = transformer.value("pad_id", kPadding);
  require(hidden < 0 || input.ignored == hidden,
          "[golden] the transformer hides {} and its loss counts it; not known here", hidden);
  // The groups of a codec are so many frames more to their transformers.
  input.acoustic = coarse_ids(transformer, coarse).flatten(1);
  input.fine = fine.flatten(1);
  check_losses(c, check, *model, fine_losses(model, input, loss_config(c.config.at("wrapper"))), "coarse");
}

int64_t codec_groups(const Case& c) {
  const auto codec = c.config.value("codec", ordered_json());
  return codec.is_object() ? codec.value("rq_groups", int64_t{1}) : 1;
}

StageRequest request(const Case& c, bool coarse, Draws& draws) {
  const ordered_json& given = c.config.at("generate");
  expect_only(given, {"max_length", "max_time_steps", "batch_size", "temperature", "filter_thres",
                      "cond_scale", "reconstruct_wave", "mask_out_generated_fine_tokens", "use_kv_cache",
                      "include_eos_in_output", "prime_wave_input_sample_hz"});
  expect_wrapper(c.config.at("wrapper"));
  StageRequest result;
  result.sampling.temperature = given.value("temperature", 1.0);
  result.sampling.filter = given.value("filter_thres", 0.9);
  result.sampling.guidance = given.value("cond_scale", 3.0);
  result.unique_consecutive = c.config.at("wrapper").value("unique_consecutive", true);
  result.ignored = ignored_id(c.config.at("wrapper"));
  // Texts become embeddings before the model sees them, so that only the coarse one masks their padding.
  const char* text = c.has("in.text_embeds_from_t5") ? "text_embeds_from_t5" : "text_embeds";
  if (c.has(std::string("in.") + text))
    result.condition = coarse ? masked_condition(c.in(text)) : Condition{c.in(text), {}};
  result.frames_between_ends = codec_groups(c);
  result.as_audiolm_pytorch = true;
  result.draws = &draws;
  return result;
}

// What stands before generation. Their unique_consecutive fills rows up with pad_id, a token like any other
// if it is not negative: then there is nothing left to do in generation.
at::Tensor tidied(const at::Tensor& ids, StageRequest& how) {
  if (!how.ignored || !how.unique_consecutive) return ids;
  how.unique_consecutive = false;
  const at::Tensor tidy = tidy_tokens(ids, -1, true, true);
  return tidy.masked_fill(tidy.eq(kPadding), *how.ignored);
}

// With a prefix their cache gives wrong tokens; the file holds the right ones beside.
const at::Tensor& sound_ids(const Case& c) {
  return c.has("out.ids_without_kv_cache") ? c.out("ids_without_kv_cache") : c.out("ids");
}

// Greedy cases record no draws: at their temperature noise means nothing.
class AnyDraws : public Draws {
 public:
  explicit AnyDraws(const Case& c) : replay_(c, "rand."), recorded_(c.has("rand.uniform.000")) {}
  int64_t integer(std::string_view what, int64_t low, int64_t high) override {
    return replay_.integer(what, low, high);
  }
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override {
    return replay_.rows(what, population, count);
  }
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override {
    return recorded_ ? replay_.uniform(what, shape) : at::full(shape, std::exp(-1.0));  // Gumbel noise 0
  }
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override {
    return replay_.normal(what, shape);
  }

 private:
  ReplayDraws replay_;
  bool recorded_;
};

void check_semantic_generate(const Case& c, Checker& check) {
  auto model = build<SemanticTransformer>(c, semantic_config, c.config.at("transformer"));
  const ordered_json& given = c.config.at("generate");
  for (const bool cache : {true, false}) {
    AnyDraws draws(c);
    StageRequest how = request(c, false, draws);
    how.use_cache = cache;
    const int64_t batch = how.condition.embeddings.defined() ? how.condition.embeddings.size(0)
                                                             : given.value("batch_size", int64_t{1});
    const at::Tensor prompt = c.has("in.prime_ids") ? c.in("prime_ids") : at::empty({batch, 0}, at::kLong);
    const at::Tensor ids =
        generate_semantic(model, tidied(prompt, how), given.at("max_length").get<int64_t>(), how);
    check.close(cache ? "ids" : "ids without cache", ids, sound_ids(c));
  }
}

at::Tensor padded_frames(const at::Tensor& codes, int64_t frames) {
  return at::constant_pad_nd(codes, {0, 0, 0, frames - codes.size(1)}, kPadding);
}

SoundStreamGan load_codec(const Case& c) {
  SoundStreamGan gan(soundstream_config(c.config.at("codec")));
  load_codec_weights(gan, below(c.weights, kCodecPrefix));
  gan->eval();
  return gan;
}

// [batch, frames, groups * quantizers]
at::Tensor prompt_codes(const Case& c) {
  const at::NoGradGuard no_grad;
  const auto rate = c.config.at("generate").value("prime_wave_input_sample_hz", ordered_json());
  const at::Tensor codes =
      load_codec(c)->codec->tokenize(c.in("prime_wave"), rate.is_null() ? 0 : rate.get<int64_t>());
  return codes.permute({1, 2, 0, 3}).flatten(2);
}

void check_wave(const Case& c, Checker& check, const at::Tensor& codes) {
  SoundStreamGan gan = load_codec(c);
  const at::NoGradGuard no_grad;
  for (int64_t row = 0; row < codes.size(0); ++row) {
    const at::Tensor there = codes[row].ne(kPadding).all(-1);
    if (!there.any().item<bool>()) continue;
    const at::Tensor wave = gan->codec->decode_codes(codes[row].index({there}).unsqueeze(0)).flatten();
    if (c.has("out.wave")) check.close(fmt::format("wave {}", row), wave, c.out("wave")[row]);
    if (const std::string own = fmt::format("wave.{}", row); c.has("out." + own))
      check.close(own, wave, c.out(own));
  }
}

void check_coarse_generate(const Case& c, Checker& check) {
  auto model = build<CoarseTransformer>(c, coarse_config, c.config.at("transformer"));
  const ordered_json& given = c.config.at("generate");
  const int64_t groups = codec_groups(c), width = model->config().quantizers * groups;
  const int64_t frames = given.value("max_time_steps", int64_t{512});
  at::Tensor prompt;
  if (c.has("in.prime_coarse_token_ids")) prompt = c.in("prime_coarse_token_ids").flatten(1);
  if (c.has("in.prime_wave")) prompt = prompt_codes(c).narrow(2, 0, width).flatten(1);
  for (const bool cache : {true, false}) {
    AnyDraws draws(c);
    StageRequest how = request(c, true, draws);
    how.use_cache = cache;
    const at::Tensor flat =
        generate_coarse(model, tidied(token_ids(c, "semantic_token_ids"), how), prompt, frames * groups, how);
    const int64_t all = frames + (prompt.defined() ? prompt.size(1) / width : 0);
    const at::Tensor codes = padded_frames(flat, all * groups).reshape({flat.size(0), all, width});
    if (c.has("out.ids")) check.close(cache ? "ids" : "ids without cache", codes, sound_ids(c));
    if (given.value("reconstruct_wave", false)) check_wave(c, check, codes);
  }
}

void check_fine_generate(const Case& c, Checker& check) {
  const ordered_json& transformer = c.config.at("transformer");
  auto model = build_fine(c, transformer);
  const ordered_json& given = c.config.at("generate");
  const FineConfig& sizes = model->config();
  const at::Tensor flat = token_ids(c, "coarse_token_ids").flatten(1);
  const int64_t groups = codec_groups(c), batch = flat.size(0);
  const at::Tensor coarse = flat.view({batch, -1, groups * sizes.coarse_quantizers});
  at::Tensor prompt;
  if (c.has("in.prime_fine_token_ids")) prompt = c.in("prime_fine_token_ids").flatten(1);
  if (c.has("in.prime_wave"))
    prompt = prompt_codes(c)
                 .narrow(2, groups * sizes.coarse_quantizers, groups * sizes.fine_quantizers)
                 .flatten(1);
  for (const bool cache : {true, false}) {
    AnyDraws draws(c);
    StageRequest how = request(c, false, draws);
    how.use_cache = cache;
    at::Tensor codes = generate_fine(
        model, coarse_ids(transformer, flat).view({batch, -1, sizes.coarse_quantizers}), prompt, how);
    codes = codes.reshape({batch, -1, groups * sizes.fine_quantizers});
    if (given.value("mask_out_generated_fine_tokens", false))
      codes = codes.masked_fill(coarse.eq(how.ignored.value_or(kPadding)).all(-1, true),
                                how.ignored.value_or(kPadding));
    if (c.has("out.ids")) check.close(cache ? "ids" : "ids without cache", codes, sound_ids(c));
    if (given.value("reconstruct_wave", false)) check_wave(c, check, at::cat({coarse, codes}, 2));
  }
}

const bool registered =
    register_case("audiolm", "SemanticTransformer", check_semantic) &&
    register_case("audiolm", "CoarseTransformer", check_coarse) &&
    register_case("audiolm", "FineTransformer", check_fine) &&
    register_case("audiolm", "SemanticTransformerWrapper", check_semantic_loss) &&
    register_case("audiolm", "CoarseTransformerWrapper", check_coarse_loss) &&
    register_case("audiolm", "FineTransformerWrapper", check_fine_loss) &&
    register_case("audiolm", "SemanticTransformerWrapper.generate", check_semantic_generate) &&
    register_case("audiolm", "CoarseTransformerWrapper.generate", check_coarse_generate) &&
    register_case("audiolm", "FineTransformerWrapper.generate", check_fine_generate);

}  // namespace

}  // namespace melete::golden::cases_stages
