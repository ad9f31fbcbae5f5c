// MelVoco and EncodecVoco: sound to frames and back.
#include "core/base/error.h"
#include "nn/frozen.h"
#include "pretrained/encodec_names.h"
#include "pretrained/vocos_names.h"
#include "voicebox.h"

namespace melete::golden::voicebox_audio_cases {

namespace {

void check_mel(const Case& c, Checker& check) {
  expect_only(c.config, {"log", "n_mels", "sampling_rate", "f_max", "n_fft", "win_length", "hop_length",
                         "pretrained_vocos_path", "vocos"});
  const auto number = [&](const char* name, int64_t otherwise) {
    const auto found = c.config.find(name);
    return found == c.config.end() || found->is_null() ? otherwise : found->get<int64_t>();
  };
  MelFramesConfig config;
  config.values = c.config.value("log", true) ? "decibels" : "power";
  config.mels = number("n_mels", 100);
  config.rate_hz = number("sampling_rate", 24000);
  config.n_fft = number("n_fft", 1024);
  config.window = number("win_length", c.config.contains("win_length") ? config.n_fft : 640);
  config.hop = number("hop_length", c.config.contains("hop_length") ? config.window / 2 : 160);
  const auto high = c.config.find("f_max");
  config.high_hz = high == c.config.end() ? 8000 : high->is_null() ? 0 : high->get<double>();

  const TensorMap weights = below(c.weights, "vocos.");
  const MelVocos features(config, foreign_vocos::load(vocos_config(c, weights), weights, c.name));
  if (c.has("in.audio")) {
    const at::Tensor mel = features.encode(c.in("audio"));
    check.close("mel", mel, c.out("mel"));
    require(mel.size(1) == features.frames(c.in("audio").size(1)), "it says {} frames and makes {}",
            features.frames(c.in("audio").size(1)), mel.size(1));
  }
  if (c.has("in.mel_to_decode"))
    check.close("decoded", features.decode(c.in("mel_to_decode")), c.out("decoded"));
}

void check_encodec(const Case& c, Checker& check) {
  expect_only(c.config, {"tiny", "sampling_rate", "bandwidth_id", "pretrained_vocos_path", "vocos"});
  const auto features = encodec_vocos(c, c.weights);
  if (c.has("in.audio")) {
    const FrozenScope frozen;
    const Encodec& model = features->codec().model();
    const at::Tensor audio = c.in("audio");
    if (c.has("out.encoder_output"))
      check.close("encoder_output", Encodec(model)->encode(audio.view({audio.size(0), 1, -1})),
                  c.out("encoder_output"));
    if (c.has("out.codes")) check.close("codes", features->codec().encode(audio.flatten(1)), c.out("codes"));
    if (c.has("out.latents")) check.close("latents", features->encode(audio.flatten(1)), c.out("latents"));
  }
  if (!c.has("in.noisy_latents")) return;
  const at::Tensor& latents = c.in("noisy_latents");
  check.close("codes_of_noisy_latents", features->codes(latents).transpose(1, 2),
              c.out("codes_of_noisy_latents"));
  check.close("decoded", features->decode(latents).unsqueeze(1), c.out("decoded"));
}

const bool registered = register_case("voicebox", "MelVoco", check_mel) &&
                        register_case("voicebox", "EncodecVoco", check_encodec);

}  // namespace

}  // namespace melete::golden::voicebox_audio_cases
