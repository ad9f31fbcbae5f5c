// What conditions MusicLM's stages: codes of the joint embedding, and tables.
#include "core/base/error.h"
#include "musiclm.h"

namespace melete::golden::musiclm_quantizer_cases {

using nlohmann::ordered_json;
using namespace musiclm;

namespace {

void check_eval(const Case& c, Checker& check, Mulan& mulan, EmbedQuantizer& quantizer) {
  quantizer->eval();
  MulanDraws draws(c, "rand.");
  at::Tensor loss = at::zeros({});
  for (const std::string side : {"audio", "text"}) {
    const bool audio = side == "audio";
    if (!c.has(audio ? "in.wavs" : "in.texts")) continue;
    const at::NoGradGuard no_grad;
    const Latents latents =
        audio ? mulan->embed_audio({c.in("wavs"), {}})
              : mulan->embed_text(text_of(c, c.in("texts"), c.config.at("text_transformer")));
    const at::Tensor codes = quantizer->codes(latents.values, &draws);
    check.close(side + "_latents", latents.values, c.out(side + "_latents"));
    check.close(side + "_indices", codes, c.out(side + "_indices"));
    check.close(side + "_quantized", quantizer->vectors(codes), c.out(side + "_quantized"));
    const at::AutoGradMode with_gradients(true);
    for (const std::string& stage : quantizer->config().stages) {
      const at::Tensor condition = quantizer->condition(codes, stage);
      check.close(side + "_cond." + stage, condition, c.out(side + "_cond." + stage));
      if (audio && c.has("in.loss_weight." + stage))
        loss = loss + (condition * c.in("loss_weight." + stage)).sum();
    }
  }
  if (!c.has("out.loss")) return;
  check.close("loss", loss, c.out("loss"));
  loss.backward();
  check_gradients(c, check, *quantizer, {});
}

void check_steps(const Case& c, Checker& check, Mulan& mulan, EmbedQuantizer& quantizer) {
  quantizer->train();
  for (int64_t step = 0;; ++step) {
    const std::string prefix = fmt::format("step{}.", step);
    const bool audio = c.has("in." + prefix + "wavs");
    if (!audio && !c.has("in." + prefix + "texts")) break;
    const at::NoGradGuard no_grad;
    const Latents latents =
        audio ? mulan->embed_audio({c.in(prefix + "wavs"), {}})
              : mulan->embed_text(text_of(c, c.in(prefix + "texts"), c.config.at("text_transformer")));
    check.close(prefix + "latents", latents.values, c.out(prefix + "latents"));
    MulanDraws draws(c, "rand." + prefix);
    const Quantized result = quantizer->quantizer(latents.values.unsqueeze(0), &draws);
    const at::Tensor codes = result.codes[0][0];
    check.close(prefix + "indices", codes, c.out(prefix + "indices"));
    check.close(prefix + "quantized", result.vectors[0], c.out(prefix + "quantized"));
    check.close(prefix + "commit_loss", result.losses, c.out(prefix + "commit_loss"));
    check.close(prefix + "cond", quantizer->condition(codes, quantizer->config().stages.front()),
                c.out(prefix + "cond"));
    for (const auto& pair : musiclm_pytorch::pairs(*quantizer))
      if (const std::string key = prefix + "state." + pair.theirs; c.has("out." + key))
        check.close(key, pair.tensor.reshape(c.out(key).sizes()), c.out(key));
  }
}

void check_quantizer(const Case& c, Checker& check) {
  Mulan mulan = load_mulan(c, "mulan.");
  EmbedQuantizer quantizer(musiclm_pytorch::quantizer_config(c.config.at("quantizer"), mulan->config().dim));
  musiclm_pytorch::load(*quantizer, c.weights, {}, {"mulan."});
  if (trains(c))
    check_steps(c, check, mulan, quantizer);
  else
    check_eval(c, check, mulan, quantizer);
}

const bool registered = register_case("musiclm", "MuLaNEmbedQuantizer", check_quantizer);

}  // namespace

}  // namespace melete::golden::musiclm_quantizer_cases
