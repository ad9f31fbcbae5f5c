// VoiceBox, its Transformer and the gate loop, each alone.
#include <torch/nn/utils.h>

#include "core/base/error.h"
#include "losses/flow_matching.h"
#include "systems/voicebox/masks.h"
#include "voicebox.h"

namespace melete::golden::voicebox_network_cases {

namespace {

using nlohmann::ordered_json;
using voicebox::Condition;

// sum(out * loss_weight), and where it leads
void check_output(const Case& c, Checker& check, const at::Tensor& x, const at::Tensor& out) {
  const at::Tensor loss = (out * c.in("loss_weight")).sum();
  check.close("out", out, c.out("out"));
  check.close("loss", loss, c.out("loss"));
  loss.backward();
  check.gradient("grad_x", x.grad(), c.out("grad_x"), kVoiceboxGradient);
}

void check_transformer(const Case& c, Checker& check) {
  voicebox::Transformer model(voicebox_pytorch::transformer_config(c.config));
  voicebox_pytorch::load(*model, c.weights, c.name);
  const at::Tensor x = c.in("x").clone().set_requires_grad(true);
  check_output(c, check, x,
               model(x, model->positions(x.size(1)), optional_input(c, "mask"),
                     optional_input(c, "adaptive_rmsnorm_cond")));
  check_gradients(c, check, *model);
}

void check_gate_loop(const Case& c, Checker& check) {
  expect_only(c.config, {"dim", "prenorm", "use_heinsen", "use_jax_associative_scan", "post_ln", "reverse"});
  GateLoopOptions options;
  options.norm = c.config.value("prenorm", true);
  options.output_norm = c.config.value("post_ln", false);
  options.backwards = c.config.value("reverse", false);
  GateLoop model(c.config.at("dim").get<int64_t>(), options);
  static const std::map<std::string, std::string> names = {{"norm_scale", "norm.gamma"},
                                                           {"qkva.weight", "to_qkva.0.weight"},
                                                           {"output_norm.weight", "maybe_post_ln.weight"},
                                                           {"output_norm.bias", "maybe_post_ln.bias"}};
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : model->named_parameters())
      at::Tensor(item.value()).copy_(c.weights.at(names.at(item.key())));
  }
  const at::Tensor x = c.in("x").clone().set_requires_grad(true);
  check_output(c, check, x, model(x));
  for (const auto& item : model->named_parameters())
    if (const std::string key = "grad." + names.at(item.key()); c.has(key))
      check.gradient(key, item.value().grad(), c.get(key), kVoiceboxGradient);
}

double condition_drop(const Case& c, double otherwise) {
  const auto given = c.json.value("cond_drop_prob", ordered_json());
  return given.is_null() ? otherwise : given.get<double>();
}

Condition given_condition(const Case& c) {
  Condition condition;
  condition.context = optional_input(c, c.has("in.cond") ? "cond" : "target");
  condition.hidden = optional_input(c, "cond_mask");
  condition.tokens = optional_input(c, "cond_token_ids");
  condition.valid = optional_input(c, "self_attn_mask");
  return condition;
}

// The loss as VoiceBox.forward(target = ...) has it.
void check_loss(const Case& c, Checker& check, voicebox::Voicebox& model, const Condition& condition) {
  const auto prepared = model->prepare(condition);
  const at::Tensor guess = model->forward(c.in("x"), c.in("times"), prepared);
  if (c.has("out.pred")) check.close("pred", guess, c.out("pred"));
  const at::Tensor counted =
      prepared.valid.defined() ? at::logical_and(condition.hidden, prepared.valid) : condition.hidden;
  const at::Tensor loss = row_means((guess - c.in("target")).square().mean(-1), counted).mean();
  check.close("loss", loss, c.out("loss"));
  loss.backward();
  check_gradients(c, check, *model);
}

void check_network(const Case& c, Checker& check) {
  const TensorMap& weights = c.weights;
  voicebox::Voicebox model =
      voicebox_network(c, c.config, weights, voicebox_pytorch::latent_dim_of_file(weights));
  const auto shares = voicebox_pytorch::flow_matching_config({}, c.config);
  Condition condition = given_condition(c);
  const int64_t batch = c.in("x").size(0), frames = c.in("x").size(1);
  const auto all = [&](bool value) { return at::full({batch}, value, at::TensorOptions(at::kBool)); };

  if (c.has("out.loss")) {
    VoiceboxDraws draws(c, "", shares.hidden_share_low, shares.hidden_share_high);
    if (!condition.hidden.defined())
      condition.hidden = voicebox::span_mask(at::full({batch}, frames, at::kLong), frames,
                                             shares.hidden_share_low, shares.hidden_share_high, draws);
    if (c.has("out.span_mask")) check.close("span_mask", condition.hidden, c.out("span_mask"));
    if (const double drop = condition_drop(c, 0); drop > 0)
      condition.dropped = voicebox::chance_mask({batch}, drop, "condition_drop", draws);
    if (c.has("out.cond_drop_mask"))
      check.close("cond_drop_mask", condition.dropped.defined() ? condition.dropped : all(false),
                  c.out("cond_drop_mask"));
    check_loss(c, check, model, condition);
    return;
  }
  model->eval();
  const at::NoGradGuard no_grad;
  // Asked without a probability, upstream's forward() has one; drawn once, for the calls that are not told.
  at::Tensor drawn;
  if (const double drop = condition_drop(c, c.has("rand.cond_drop_uniform") ? 0.1 : 0); drop > 0) {
    VoiceboxDraws draws(c, "", shares.hidden_share_low, shares.hidden_share_high);
    drawn = voicebox::chance_mask({batch}, drop, "condition_drop", draws);
    if (c.has("out.cond_drop_mask")) check.close("cond_drop_mask", drawn, c.out("cond_drop_mask"));
  }
  const auto predict = [&](const Condition& given) {
    return model->forward(c.in("x"), c.in("times"), model->prepare(given));
  };
  // Upstream hides everything where no mask is given.
  Condition unmasked = condition;
  unmasked.hidden = at::ones({batch, frames}, at::kBool);
  if (!condition.hidden.defined()) condition.hidden = unmasked.hidden;
  const auto some_dropped = [&](Condition given) {
    given.dropped = drawn;
    return given;
  };
  if (c.has("out.pred_no_cond_mask"))
    check.close("pred_no_cond_mask", predict(some_dropped(unmasked)), c.out("pred_no_cond_mask"));
  for (const char* name : {"pred_with_cond_mask", "pred"})
    if (c.has(std::string("out.") + name)) check.close(name, predict(some_dropped(condition)), c.out(name));
  if (c.has("out.null")) {
    Condition dropped = condition;
    dropped.dropped = all(true);
    check.close("null", predict(dropped), c.out("null"));
  }
  const std::string tag = "out.cond_scale_";
  for (const auto& [key, tensor] : c.io)
    if (key.starts_with(tag)) {
      const double guidance = std::stod(key.substr(tag.size()));
      check.close(key.substr(4), voicebox::guided_flow(model, condition, guidance)(c.in("times"), c.in("x")),
                  tensor);
    }
}

const bool registered =
    register_case("voicebox", "Transformer", check_transformer) &&
    register_case("voicebox", "gateloop_transformer.SimpleGateLoopLayer", check_gate_loop) &&
    register_case("voicebox", "VoiceBox", check_network);

}  // namespace

}  // namespace melete::golden::voicebox_network_cases
