// `melete generate voicebox`: what a recording or a text says, in the voice of another recording.
#include "config/schema.h"
#include "core/base/error.h"
#include "generate/sampling.h"
#include "io/audio_tensor.h"
#include "roles/open.h"
#include "run/load_weights.h"
#include "systems/spear_tts/generate.h"
#include "systems/spear_tts/load.h"
#include "systems/voicebox/sampling.h"
#include "systems/voicebox/system.h"
#include "systems/voicebox/task.h"

namespace melete {

namespace {

using namespace voicebox;

class VoiceboxGeneration final : public Generation {
 public:
  void describe(Schema& s) override {
    s.option("from", from_, "run or checkpoint of voicebox");
    s.option("speech", speech_, "recording of what to say");
    s.option("text", text_, "what to say, read by --reader");
    s.option("reader", reader_, "run of spear-text-to-semantic, trained with repeats = true");
    s.option("voice", voice_, "recording whose voice is to speak");
    s.option("voice_seconds", voice_seconds_, "take only this much of it").at_least(0.1).unit("s");
    s.option("weights", weights_,
             "ema: averaged, where there is an average; online: as the optimiser left them")
        .one_of({"ema", "online"});
    melete::voicebox::describe(s, how_);
  }

  std::vector<std::string> examples() const override {
    return {
        "voicebox --from runs/voicebox --speech said.wav --voice me.wav -o out.wav",
        "voicebox --from runs/voicebox --text \"Hello there.\" --reader runs/tts --voice me.wav -o out.wav"};
  }

  void run(const GenerationRun& run) override {
    if (from_.empty()) throw UsageError("expected --from RUN of voicebox, got none");
    if (speech_.empty() == text_.empty())
      throw UsageError("say what to say: either --speech RECORDING or --text WORDS");
    const at::NoGradGuard no_grad;
    const FoundCheckpoint found = open_checkpoint(from_, "voicebox", "voicebox");
    const auto& settings = found.checkpoint.meta.at("config");
    VoiceboxConfig config;
    schema_of(config).apply(settings.at("model"));
    Voicebox model(config);
    model->eval();
    load_weights(*model, "", found, weights_named(weights_), "voicebox");
    require(model->told(), "[voicebox] {} was trained without being told what to say", found.path);
    const FrameScale scale{settings.at("frame_mean"), settings.at("frame_deviation")};
    const auto features = open_audio_features(settings.at("features_from").get<std::string>());
    const auto tokenizer = open_semantic_tokenizer(settings.at("semantic_from").get<std::string>());

    at::Tensor tokens = speech_.empty()
                            ? read_text(*tokenizer, run.seed)
                            : tokenizer->tokenize(read_mono(speech_, tokenizer->rate_hz()).unsqueeze(0));
    int64_t known = 0;
    at::Tensor context;
    if (!voice_.empty()) {
      tokens = at::cat(
          {tokenizer->tokenize(read_mono(voice_, tokenizer->rate_hz(), voice_seconds_).unsqueeze(0)), tokens},
          1);
      context =
          scale.apply(features->encode(read_mono(voice_, features->rate_hz(), voice_seconds_).unsqueeze(0)));
      known = context.size(1);
    } else {
      context = at::zeros({1, 0, features->dim()});
    }
    const int64_t frames =
        frames_of_tokens(tokens.size(1), tokenizer->tokens_per_second(), features->frames_per_second());
    require(frames > known, "[voicebox] there is nothing left to say after the voice's {} frames", known);
    Condition condition;
    condition.context = with_length(context, frames);
    condition.tokens = tokens;
    condition.hidden = at::ones({1, frames}, at::kBool);
    condition.hidden.narrow(1, 0, known).fill_(false);
    RowDraws draws(run.seed, "voicebox", 1);
    const Sampled made = sample(model, condition, how_, draws);
    const at::Tensor wave = features->decode(scale.undo(made.frames))[0];
    const int64_t skip = known * features->samples_per_frame();
    const at::Tensor spoken = wave.narrow(0, skip, wave.size(0) - skip);
    write_wave(run.out, spoken, features->rate_hz());
    run.say(fmt::format("{}  {:.2f} s at {} Hz, {} evaluations of the network", run.out,
                        static_cast<double>(spoken.numel()) / static_cast<double>(features->rate_hz()),
                        features->rate_hz(), made.solution.evaluations));
  }

 private:
  // [1, n] semantic tokens of the text
  at::Tensor read_text(const SemanticTokenizer& tokenizer, uint64_t seed) const {
    if (reader_.empty())
      throw UsageError("--text is read by --reader RUN of spear-text-to-semantic, got none");
    spear_tts::Reader reader = spear_tts::open_reader(reader_, weights_named(weights_));
    require(reader.repeats,
            "[reader] {} was trained without repeats: its tokens do not tell how long they take", reader_);
    require(reader.semantic_identity == tokenizer.identity(),
            "[reader] {} makes tokens of {}, voicebox knows those of {}", reader_, reader.semantic_identity,
            tokenizer.identity());
    spear_tts::Source source;
    source.ids = at::tensor(reader.text->pieces(text_), at::kLong).unsqueeze(0);
    source.modality = spear_tts::Modality::text;
    RowDraws draws(seed, "spear-tts", 1);
    const at::Tensor row =
        spear_tts::generate(reader.model, source, spear_tts::Modality::speech, {}, draws).tokens[0];
    return row.index({row.ge(0).logical_and(row.ne(reader.model->speech->end_id()))}).unsqueeze(0);
  }

  std::string from_, speech_, text_, reader_, voice_, weights_ = "ema";
  double voice_seconds_ = 3;
  FlowSampling how_;
};

}  // namespace

std::unique_ptr<Generation> make_voicebox_generation() {
  return std::make_unique<VoiceboxGeneration>();
}

}  // namespace melete
