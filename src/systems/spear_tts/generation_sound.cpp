#include "systems/spear_tts/generation_sound.h"

#include "config/schema.h"
#include "core/base/error.h"
#include "io/audio_tensor.h"
#include "roles/open.h"
#include "systems/audiolm/load.h"
#include "systems/voicebox/generation_tokens.h"

namespace melete::spear_tts {

void describe(Schema& s, SoundConfig& c) {
  s.option("coarse", c.coarse, "run of AudioLM's coarse stage: makes sound of the tokens");
  s.option("fine", c.fine, "run of its fine stage; without one, sound is coarse");
  s.option("codec", c.codec, "codec; default: the one the coarse stage was trained with");
  s.option("voicebox", c.voicebox,
           "instead: run of voicebox that is told by semantic tokens; needs a model with repeats");
  s.option("vocoder", c.vocoder, "run of vocos, for a voicebox of mel frames; none: Griffin-Lim");
  s.option("steps", c.steps, "of voicebox's solver; 0: as many as it takes by itself").at_least(0);
  s.option("voice", c.voice, "recording whose voice is to speak, at any rate");
  s.option("voice_seconds", c.voice_seconds, "take only this much of it").at_least(0.1).unit("s");
}

at::Tensor stage_codes(CoarseTransformer& coarse, FineTransformer& fine, const at::Tensor& tokens,
                       const StageVoice& voice, int64_t new_frames, uint64_t seed,
                       const SoundProgress& progress) {
  const bool known = voice.codes.defined();
  const int64_t before = known ? voice.codes.size(1) : 0, quantizers = coarse->config().quantizers;
  const auto request = [&](const char* stage, Draws& draws) {
    StageRequest result;
    result.draws = &draws;
    if (progress)
      result.progress = [&progress, stage](int64_t done, int64_t of) { progress(stage, done, of); };
    return result;
  };
  RowDraws draws(seed, "coarse", 1), fine_draws(seed, "fine", 1);
  at::Tensor codes = generate_coarse(coarse, at::cat({voice.tokens.to(tokens.device()), tokens}, 1),
                                     known ? voice.codes.narrow(2, 0, quantizers) : at::Tensor(), new_frames,
                                     request("coarse", draws));
  codes = codes.index({at::indexing::Slice(), codes[0].ne(kPadding).all(-1)});
  if (!fine.is_empty() && codes.size(1) > before) {
    const at::Tensor prompt =
        known ? voice.codes.narrow(2, quantizers, fine->config().fine_quantizers) : at::Tensor();
    codes = at::cat({codes, generate_fine(fine, codes, prompt, request("fine", fine_draws))}, 2);
  }
  return codes.narrow(1, before, codes.size(1) - before);
}

namespace {

// Nobody knows how long it will take to say: the model ends it, and this does where it does not.
constexpr double kLongestSecondsPerToken = 0.2;

class StageSound final : public TokenSound {
 public:
  StageSound(const SoundConfig& config, const Reader& reader, const std::string& from, Weights weights,
             at::Device device)
      : device_(device) {
    const auto run =
        load_stage<CoarseTransformer, CoarseConfig>(config.coarse, "spear-tts", "coarse", weights, device);
    const std::string identity = setting_of(run, "semantic_identity");
    require(identity.empty() || reader.semantic_identity.empty() || identity == reader.semantic_identity,
            "[spear-tts] {} was trained on semantic tokens of {}, and {} makes those of {}", run.path,
            identity, from, reader.semantic_identity);
    coarse_ = run.model;
    int64_t quantizers = coarse_->config().quantizers;
    if (!config.fine.empty()) {
      fine_ =
          load_stage<FineTransformer, FineConfig>(config.fine, "spear-tts", "fine", weights, device).model;
      quantizers += fine_->config().fine_quantizers;
    }
    const std::string codec = config.codec.empty() ? setting_of(run, "codec_from") : config.codec;
    require(!codec.empty(), "[spear-tts] {} does not say where its codec is; give --codec RUN", run.path);
    codec_ = open_codec(codec, Weights::best, device);
    if (config.voice.empty()) return;
    const std::string tokenizer =
        reader.semantic_from.empty() ? setting_of(run, "semantic_from") : reader.semantic_from;
    require(!tokenizer.empty(), "[spear-tts] neither run says where its tokenizer is, which a voice needs");
    const auto semantic = open_semantic_tokenizer(tokenizer, device);
    const auto heard = [&](int64_t rate_hz) {
      return read_mono(config.voice, rate_hz, config.voice_seconds).unsqueeze(0);
    };
    voice_.tokens = semantic->tokenize(heard(semantic->rate_hz()));
    const at::Tensor codes = codec_->encode(heard(codec_->rate_hz()));
    require(codes.size(2) >= quantizers, "[spear-tts] {} has {} quantizers, and the stages know {}", codec,
            codes.size(2), quantizers);
    voice_.codes = codes.narrow(2, 0, quantizers).to(device);
  }

  int64_t rate_hz() const override { return codec_->rate_hz(); }

  at::Tensor say(const at::Tensor& tokens, uint64_t seed, const SoundProgress& progress) override {
    const auto longest = static_cast<int64_t>(static_cast<double>(tokens.numel()) * kLongestSecondsPerToken *
                                              codec_->frames_per_second());
    const at::Tensor codes = stage_codes(coarse_, fine_, tokens.unsqueeze(0).to(device_), voice_,
                                         std::max<int64_t>(longest, 1), seed, progress);
    return codes.size(1) == 0 ? at::empty({0}) : codec_->decode(codes)[0].to(at::kCPU);
  }

 private:
  at::Device device_;
  CoarseTransformer coarse_{nullptr};
  FineTransformer fine_{nullptr};
  std::shared_ptr<const Codec> codec_;
  StageVoice voice_;
};

class VoiceboxSound final : public TokenSound {
 public:
  VoiceboxSound(const SoundConfig& config, const Reader& reader, const std::string& from, Weights weights,
                at::Device device)
      : speaker_(voicebox::load_voicebox(config.voicebox, weights, config.vocoder, device), device) {
    require(
        reader.repeats,
        "[voicebox] {} was trained without repeats: its tokens do not tell how long they take; train it with "
        "repeats = true, or give --coarse RUN",
        from);
    require(reader.semantic_identity.empty() || reader.semantic_identity == speaker_.tokenizer().identity(),
            "[voicebox] {} makes tokens of {}, voicebox knows those of {}", from, reader.semantic_identity,
            speaker_.tokenizer().identity());
    if (config.steps > 0) how_.solver.steps = config.steps;
    if (!config.voice.empty()) speaker_.take_voice(config.voice, config.voice_seconds);
  }

  int64_t rate_hz() const override { return speaker_.rate_hz(); }

  at::Tensor say(const at::Tensor& tokens, uint64_t seed, const SoundProgress&) override {
    if (tokens.numel() == 0) return at::empty({0});
    return speaker_.say(tokens.unsqueeze(0), how_, seed).wave.to(at::kCPU);
  }

 private:
  voicebox::TokenSpeaker speaker_;
  voicebox::FlowSampling how_;
};

}  // namespace

std::unique_ptr<TokenSound> open_token_sound(const SoundConfig& config, const Reader& reader,
                                             const std::string& from, Weights weights, at::Device device) {
  if (config.voicebox.empty()) return std::make_unique<StageSound>(config, reader, from, weights, device);
  return std::make_unique<VoiceboxSound>(config, reader, from, weights, device);
}

}  // namespace melete::spear_tts
