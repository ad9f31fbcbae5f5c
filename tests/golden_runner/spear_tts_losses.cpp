// SPEAR-TTS: logits, losses and gradients of the model and of its three training wrappers; its two
// transformers by themselves.
#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "spear_tts.h"

namespace melete::golden {

using namespace spear_tts;
using nlohmann::ordered_json;

namespace {

// [batch, n, classes] -> theirs, classes before positions
at::Tensor classes_first(const at::Tensor& logits) {
  return logits.transpose(1, 2);
}

void check_losses(const Case& c, Checker& check, SpearModel& spear, const PairLosses& losses) {
  check.close("loss", losses.total, c.out("loss"));
  if (c.has("out.logits")) check.close("logits", classes_first(losses.logits), c.out("logits"));
  losses.total.backward();
  check_gradients(c, check, spear.model);
}

}  // namespace

void check_spear_forward(const Case& c, Checker& check) {
  const ordered_json& call = c.json.at("call");
  expect_only(call, {"source_type", "target_type", "return_early_exit_loss", "cond_drop_prob",
                     "should_sim_regularize", "return_loss", "return_logits"});
  SpearModel spear = spear_model(c, c.config);
  Pair pair;
  pair.source = c.in("source");
  pair.target = c.in("target");
  pair.direction = direction(call);
  pair.source_seen = given_mask(c, "source_mask");
  pair.target_seen = given_mask(c, "target_mask");
  SpearDraws draws(c, "rand.");
  LossPass pass;
  pass.condition_drop = value_or(call, "cond_drop_prob", spear.settings.model.condition_drop);
  pass.align = value_or(call, "should_sim_regularize", true);
  pass.draws = &draws;
  pass.training = draws.has_dropout();
  const bool early = value_or(call, "return_early_exit_loss", false);
  // Without a loss, theirs gives the target no end, and the logits of all positions.
  const std::string all_logits =
      value_or(call, "return_loss", c.has("out.loss")) ? "logits_no_loss" : "logits";
  if (c.has("out." + all_logits)) {
    const at::NoGradGuard no_grad;
    const Context context = spear.model->encode({pair.source, pair.direction.source, pair.source_seen});
    const TransformerOutput output =
        spear.model->decode(pair.target, pair.direction.target, context, pair.target_seen);
    check.close(all_logits, spear.model->vocabulary(pair.direction.target).logits(output.values),
                c.out(all_logits));
  }
  if (c.has("out.loss_without_early_exit")) {
    const at::NoGradGuard no_grad;
    check.close("loss_without_early_exit", pair_losses(spear.model, pair, spear.settings.loss, pass).total,
                c.out("loss_without_early_exit"));
  }
  pass.early_exit = early;
  if (c.has("out.loss"))
    check_losses(c, check, spear, pair_losses(spear.model, pair, spear.settings.loss, pass));
}

namespace {

void check_pretraining(const Case& c, Checker& check) {
  expect_only(c.config, {"model", "wav2vec", "deletion_prob", "reconstruct_seq", "mask_id"});
  SpearModel spear = spear_model(c, c.config.at("model"));
  const DeletionConfig deletion = foreign_deletion(c.config);
  const ordered_json call = c.json.value("call", ordered_json::object());
  expect_only(call, {"return_early_exit_loss"});
  {
    SpearDraws draws(c, "rand.");
    const Damaged damaged = damage(c.in("x"), *spear.model->speech, deletion, draws);
    check.close("delete_mask", damaged.deleted, c.out("delete_mask"));
    check.close("source", damaged.source, c.out("source"));
    check.close("target", damaged.target, c.out("target"));
  }
  SpearDraws draws(c, "rand.");
  LossPass pass;
  pass.condition_drop = spear.settings.model.condition_drop;
  pass.early_exit = value_or(call, "return_early_exit_loss", false);
  pass.draws = &draws;
  pass.training = draws.has_dropout();
  check_losses(c, check, spear,
               pretraining_losses(spear.model, c.in("x"), deletion, spear.settings.loss, pass));
}

void check_wrapper(const Case& c, Checker& check, const Direction& direction) {
  expect_only(c.config, {"model"});
  const ordered_json call = c.json.value("call", ordered_json::object());
  expect_only(call, direction == kTextToSpeech ? std::set<std::string>{"return_early_exit_loss"}
                                               : std::set<std::string>{});
  SpearModel spear = spear_model(c, c.config.at("model"));
  const at::Tensor speech = c.in("semantic_token_ids"), text = c.in("grapheme_token_ids");
  const bool reads_text = direction.source == Modality::text;
  const Pair pair{reads_text ? text : speech, reads_text ? speech : text, direction, {}, {}};
  SpearDraws draws(c, "rand.");
  LossPass pass;
  pass.condition_drop = spear.settings.model.condition_drop;
  // Theirs asks for the early exit's loss unless told not to; `what` says which it was.
  if (direction == kTextToSpeech)
    pass.early_exit = value_or(call, "return_early_exit_loss", !c.says("return_early_exit_loss=False"));
  pass.draws = &draws;
  pass.training = draws.has_dropout();
  check_losses(c, check, spear, pair_losses(spear.model, pair, spear.settings.loss, pass));
}

void check_semantic_to_text(const Case& c, Checker& check) {
  check_wrapper(c, check, kSpeechToText);
}

void check_text_to_semantic(const Case& c, Checker& check) {
  check_wrapper(c, check, kTextToSpeech);
}

void check_subset_mask(const Case& c, Checker& check) {
  expect_only(c.config, {"cases"});
  const auto count = static_cast<int64_t>(c.config.at("cases").size());
  for (int64_t i = 0; i < count; ++i) {
    const std::string prefix = std::to_string(i) + ".";
    SpearDraws draws(c, "rand." + prefix);
    const double at_least = c.has("in." + prefix + "min_mask") ? c.in(prefix + "min_mask").item<double>() : 0;
    check.close(
        prefix + "subset_mask",
        random_subset(c.in(prefix + "mask"), c.in(prefix + "prob").item<double>(), draws, true, at_least),
        c.out(prefix + "subset_mask"));
  }
}

// Their cache: [batch, depth, 2, key_heads, n, head_dim], with keys as they were before their rotation.
at::Tensor their_cache(TransformerImpl& decoder, const Cache& cache, int64_t n) {
  const at::Tensor back = at::arange(n, at::kFloat).neg();
  const Rotation unturn = rotation(back, decoder.frequencies, RotaryPairs::interleaved);
  std::vector<at::Tensor> layers;
  for (const Cache::Layer& layer : cache.layers) {
    const at::Tensor used = layer.own.narrow(1, 0, n);
    layers.push_back(
        at::stack({rotate(used.select(2, 0), unturn), used.select(2, 1)}, 1).permute({0, 1, 3, 2, 4}));
  }
  return at::stack(layers, 1);
}

void check_transformers(const Case& c, Checker& check) {
  const at::NoGradGuard no_grad;
  SpearModel spear = spear_model(c, c.config);
  TransformerImpl& decoder = *spear.model->decoder;
  const at::Tensor x = c.in("x");
  const Context context{c.in("context"), c.in("context_mask")};
  const int64_t batch = x.size(0), n = x.size(1), depth = decoder.config().depth;
  check.close("full", decoder.forward(x, {}, context).values, c.out("full"));
  std::vector<at::Tensor> streams;
  for (int64_t layer = 1; layer <= depth; ++layer) {
    streams.push_back(decoder.forward(x, {}, context, nullptr, layer).early);
    const std::string early = "early_exit_" + std::to_string(layer);
    if (c.has("out." + early)) check.close(early, streams.back(), c.out(early));
  }
  check.close("hiddens", at::stack(streams), c.out("hiddens"));

  const auto in_pieces = [&](const std::vector<int64_t>& sizes, const std::string& name,
                             const std::string& cache_name) {
    Cache cache = decoder.make_cache(context, n, 1, false);
    std::vector<at::Tensor> outputs;
    int64_t first = 0;
    for (const int64_t size : sizes) {
      const std::vector<int64_t> at(static_cast<size_t>(batch), first);
      outputs.push_back(decoder.norm(decoder.run(x.narrow(1, first, size), at, {0, depth}, cache)));
      first += size;
    }
    check.close(name, at::cat(outputs, 1), c.out(name));
    check.close(cache_name, their_cache(decoder, cache, n), c.out(cache_name));
  };
  in_pieces({n}, "full", "cache_full");
  if (c.has("out.incremental")) {
    std::vector<int64_t> sizes;
    int64_t rest = n;
    for (const int64_t size : {int64_t{1}, int64_t{1}, int64_t{2}, n})
      if (rest > 0) sizes.push_back(std::min(size, rest)), rest -= sizes.back();
    in_pieces(sizes, "incremental", "cache_incremental");
  }

  if (c.has("out.seq_start_pos_out")) {
    // What comes before a row's start is looked at by nobody, and its outputs mean nothing.
    const at::Tensor there = at::arange(n).ge(c.in("seq_start_pos").unsqueeze(1));
    const at::Tensor got = decoder.forward(x, there, context).values;
    const at::Tensor shown = there.unsqueeze(2);
    check.close("seq_start_pos_out", got * shown, c.out("seq_start_pos_out") * shown);
  }
  if (c.has("out.source_transformer"))
    check.close("source_transformer", spear.model->encoder->forward(context.values, context.seen).values,
                c.out("source_transformer"));
}

const bool registered =
    register_case("spear-tts", "SpeechSpeechPretrainWrapper", check_pretraining) &&
    register_case("spear-tts", "SemanticToTextWrapper", check_semantic_to_text) &&
    register_case("spear-tts", "TextToSemanticWrapper", check_text_to_semantic) &&
    register_case("spear-tts", "get_mask_subset_prob", check_subset_mask) &&
    register_case("spear-tts", "TextToSemantic.target_transformer / source_transformer", check_transformers);

}  // namespace

}  // namespace melete::golden
