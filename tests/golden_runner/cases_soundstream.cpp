// SoundStream: reconstruction in eval, generator losses with gradients in training, discriminator losses.
#include <torch/autograd.h>

#include "core/base/error.h"
#include "golden.h"
#include "systems/soundstream/foreign_names.h"

namespace melete::golden::cases_soundstream {

namespace {

using audiolm_pytorch::soundstream_pairs;

SoundStreamGan build(const Case& c) {
  auto config =
      audiolm_pytorch::soundstream_config(c.config, c.json.value("msd_kwargs", nlohmann::ordered_json()));
  if (c.says("dead code replacement switched off")) config.codec.quantizer.dead_code_threshold = 0;
  SoundStreamGan model(config);
  audiolm_pytorch::load_soundstream(model, c.weights);
  model->train(c.json.value("mode", "eval") == "train");
  return model;
}

nlohmann::ordered_json call_arguments(const Case& c) {
  const auto arguments = c.json.value("forward_kwargs", nlohmann::ordered_json::object());
  expect_only(arguments, {"is_denoising", "input_sample_hz", "curtail_from_left", "apply_grad_penalty",
                          "return_discr_loss", "return_discr_losses_separately", "return_loss_breakdown",
                          "return_encoded", "return_codes_only", "return_recons_only"});
  return arguments;
}

at::Tensor prepared(const Case& c, const SoundStreamGan& model, const std::string& name) {
  const auto arguments = call_arguments(c);
  const auto rate = arguments.value("input_sample_hz", nlohmann::ordered_json());
  return model->codec->prepare(c.in(name), rate.is_null() ? 0 : rate.get<int64_t>(),
                               arguments.value("curtail_from_left", false));
}

std::optional<bool> denoising(const Case& c) {
  const auto arguments = call_arguments(c);
  if (!arguments.contains("is_denoising") || arguments["is_denoising"].is_null()) return {};
  return arguments["is_denoising"].get<bool>();
}

// Their commitment losses are [groups, 1, quantizers], [groups, quantizers] or one zero.
void check_commitment(const Case& c, Checker& check, const std::string& name, const at::Tensor& losses) {
  if (!c.has("out." + name)) return;
  const at::Tensor& want = c.out(name);
  check.close(
      name,
      want.numel() == losses.numel() ? losses.reshape(want.sizes()) : losses.sum().reshape(want.sizes()),
      want);
}

void check_eval(const Case& c, Checker& check) {
  const at::NoGradGuard no_grad;
  SoundStreamGan model = build(c);
  SoundStream& codec = model->codec;
  const auto arguments = call_arguments(c);
  const at::Tensor wave = prepared(c, model, "wave");
  ReplayDraws draws(c, "rand.");
  const auto output = codec->forward(wave, &draws, true, denoising(c));

  at::Tensor x = codec->encoder_input(wave);
  for (const auto& block : *codec->encoder_blocks) x = block->as<CodecBlockImpl>()->forward(x);
  x = codec->encoder_output(x).transpose(1, 2);
  check.close("encoder", x, c.out("encoder"));
  if (c.has("out.encoder_attn"))
    check.close("encoder_attn", codec->encoder_attention(x), c.out("encoder_attn"));
  check.close("codes", output.quantized.codes, c.out("codes"));
  check.close("quantized", output.quantized.vectors, c.out("quantized"));
  const at::Tensor flat = output.quantized.codes.permute({1, 2, 0, 3}).flatten(2);
  check.close("indices", flat, c.out("indices"));
  check_commitment(c, check, "commit_loss", output.quantized.losses);
  check.close("recon", output.wave, c.out("recon"));
  check.close("decoded_from_indices", codec->decode_codes(c.out("indices")), c.out("decoded_from_indices"));
  if (c.has("out.decoded_from_coarse_indices"))
    check.close("decoded_from_coarse_indices", codec->decode_codes(c.out("coarse_indices")),
                c.out("decoded_from_coarse_indices"));
  if (!arguments.contains("is_denoising") && !arguments.contains("input_sample_hz"))
    check.close("tokenize", codec->tokenize(wave), c.out("codes"));
}

void check_gradients(const Case& c, Checker& check, SoundStreamGan& model) {
  for (const auto& pair : soundstream_pairs(*model, "", model->config())) {
    const std::string key = "grad." + pair.theirs;
    if (c.has(key)) check.gradient(key, pair.tensor.grad(), c.get(key).reshape(pair.tensor.sizes()));
  }
}

void check_state(const Case& c, Checker& check, SoundStreamGan& model, const std::string& prefix) {
  for (const auto& pair : soundstream_pairs(*model, "", model->config()))
    if (c.has(prefix + pair.theirs))
      check.close(prefix + pair.theirs, pair.tensor,
                  c.get(prefix + pair.theirs).reshape(pair.tensor.sizes()));
}

void check_training(const Case& c, Checker& check) {
  SoundStreamGan model = build(c);
  ReplayDraws draws(c, "rand.");
  std::optional<at::Tensor> target;
  if (c.has("in.target")) target = prepared(c, model, "target");
  const auto losses = model->generator_losses(prepared(c, model, "wave"), &draws, target, denoising(c));
  losses.total.backward();

  check.close("loss", losses.total, c.out("loss"));
  const std::pair<const char*, const char*> names[] = {{"reconstruction", "recon_loss"},
                                                       {"mel", "multi_spectral_recon_loss"},
                                                       {"adversarial", "adversarial_loss"},
                                                       {"feature", "feature_loss"},
                                                       {"commitment", "all_commitment_loss"}};
  for (const auto& [ours, theirs] : names)
    for (const auto& [name, value] : losses.named)
      if (name == ours) check.close(theirs, value, c.out(theirs));
  check.close("quantized", losses.output.quantized.vectors, c.out("quantized"));
  check.close("indices", losses.output.quantized.codes, c.out("indices"));
  check_commitment(c, check, "commit_losses", losses.output.quantized.losses);
  check.close("recon", losses.output.wave, c.out("recon"));
  check_gradients(c, check, model);
  check_state(c, check, model, "post.");
}

// "scale:0.5_gradient_penalty" is "scale_grad_penalty:0.5" there.
std::string their_loss_name(const std::string& ours) {
  const std::string tail = "_gradient_penalty";
  if (!ours.ends_with(tail)) return ours;
  const std::string base = ours.substr(0, ours.size() - tail.size());
  const auto colon = base.find(':');
  return colon == std::string::npos ? base + "_grad_penalty" : "scale_grad_penalty" + base.substr(colon);
}

void check_discriminators(const Case& c, Checker& check) {
  SoundStreamGan model = build(c);
  const bool separate = c.json["order"].is_array();
  const bool penalty = call_arguments(c).value(
      "apply_grad_penalty", c.json.value("what", "").find("gradient penalty") != std::string::npos);
  ReplayDraws draws(c, "rand.");
  const auto losses = model->discriminators->losses(
      model->make_pair(prepared(c, model, "wave"), &draws, model->is_training()), penalty);

  at::Tensor total = at::zeros({}), scales = at::zeros({});
  for (const auto& [ours, value] : losses) {
    const std::string theirs = their_loss_name(ours);
    if (separate) {
      check.close(theirs, value, c.out("discr." + theirs));
      total = total + value;
    } else if (ours.starts_with("stft")) {
      total = total + value;
    } else if (!ours.ends_with("penalty")) {  // their sum forgets the penalties of the scales
      scales = scales + value;
    }
  }
  if (!separate) total = total + scales / static_cast<double>(model->config().discriminator_scales.size());
  total.backward();
  check.close("loss", total, c.out("loss"));
  check_gradients(c, check, model);
  check_state(c, check, model, "post.");
}

void check_soundstream(const Case& c, Checker& check) {
  if (c.json.contains("order")) return check_discriminators(c, check);
  if (c.has("out.loss")) return check_training(c, check);
  check_eval(c, check);
}

const bool registered = register_case("audiolm", "SoundStream", check_soundstream);

}  // namespace

}  // namespace melete::golden::cases_soundstream
