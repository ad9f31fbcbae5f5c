// `melete generate voicebox`: a text read in a voice, a recording with other words in it, or what a recording
// says in the voice of another.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/base/manifest.h"
#include "data/base/text_lines.h"
#include "generate/product_precision.h"
#include "generate/runge_kutta.h"
#include "io/audio_tensor.h"
#include "io/base/audio_file.h"
#include "io/base/resample.h"
#include "losses/sound_figures.h"
#include "systems/voicebox/generation_speech.h"
#include "systems/voicebox/generation_tokens.h"
#include "systems/voicebox/sampling_together.h"
#include "systems/voicebox/saved_voice.h"
#include "systems/voicebox/system.h"
#include "systems/voicebox/warped_distance.h"

namespace melete {

namespace {

using namespace voicebox;

constexpr double kFadeSeconds = 0.01;  // over the seams of an edit
constexpr int64_t kComparedRateHz = 16000;
constexpr int64_t kBatchesSorted =
    8;  // whose sentences are sorted by length before they are cut into batches

class VoiceboxGeneration final : public Generation {
 public:
  VoiceboxGeneration() { how_.sampling.guidance = 1; }

  void describe(Schema& s) override {
    s.option("from", from_, "run or checkpoint of voicebox");
    s.option("text", text_, "what to say; pauses: <break 0.5s>; phonemes: [[h ə l ˈoʊ]]");
    s.option("text_file", text_file_, "what to say, a recording for every line");
    s.option("batch", batch_,
             "sentences of like length that go through the network at once: quicker for many, and equal but "
             "for rounding")
        .at_least(1)
        .at_most(1024);
    s.option("durations", durations_, "run of duration, for a model that is told by phonemes");
    s.option("aligner", aligner_, "run of aligner, to know when a given recording says what");
    s.option("features_from", features_from_,
             "what turns frames into sound, for a model that does not say so, as one that was imported: mel, "
             "or a run or file of vocos, or a run of a codec");
    s.option("vocoder", vocoder_, "run of vocos, for a model of mel frames; none: Griffin-Lim");
    s.option("voice", voice_, "recording whose voice is to speak, or the name of one that `voice save` kept");
    s.option("voice_text", voice_text_, "what it says; none: as the .txt beside it has it");
    s.option("voice_seconds", voice_seconds_, "take only this much of it").at_least(0.1).unit("s");
    s.option("speed", how_.speed, "above 1: faster").at_least(0.1).at_most(10);
    s.option("seconds", how_.seconds,
             "how long a sentence is to last; 0: as long as its phonemes. Of a model that is told nothing: "
             "how much to make")
        .at_least(0)
        .unit("s");
    s.option("edit", edit_, "recording to change; every sample that is not made anew stays as it is");
    s.option("edit_text", edit_text_, "what it says; none: as the .txt beside it has it");
    s.option("replace", replace_, "words of it that are to give way");
    s.option("with", with_, "what it is to say instead");
    s.option("denoise", denoise_, "stretch of --edit that is made anew with the same words: FROM TO")
        .unit("s");
    s.option("copy", copy_,
             "recording, folder or manifest: each becomes frames and sound again, what the vocoder alone "
             "loses, and prints how far the copies are from the originals");
    s.option("compare", compare_, "recordings: prints how far the result is from each, the nearest first");
    s.option("speech", speech_, "recording of what to say, for a model that is told by semantic tokens");
    s.option("semantic_from", semantic_from_,
             "semantic tokenizer of a model that does not say whose tokens it knows");
    s.option("weights", weights_,
             "ema: averaged, where there is an average; online: as the optimiser left them")
        .one_of({"ema", "online"});
    OdeConfig& solver = how_.sampling.solver;
    s.option("steps", solver.steps, "of a solver that does not choose its own").at_least(1);
    s.option("solver", solver.method, "from noise to speech").one_of(runge_kutta_names());
    s.option(
         "absolute_tolerance", solver.absolute_tolerance,
         "of a solver that chooses its own steps (from adaptive_heun on): how far one may be off beside 0")
        .at_least(0);
    s.option("relative_tolerance", solver.relative_tolerance, "likewise, as a share of the value")
        .at_least(0);
    s.option("most_steps", solver.most_steps, "that such a solver may take").at_least(1);
    s.option("sway", solver.sway, "below 0: more steps early on");
    s.option("grid", solver.grid, "where steps are").one_of({"uniform", "epss"});
    s.option("guidance", how_.sampling.guidance,
             "how far to go from the untold direction to the told one; 1: just that");
    s.option("temperature", how_.sampling.temperature,
             "deviation of the noise at the start; below 1: less varied, clearer from a small model")
        .at_least(0)
        .at_most(2);
    s.option("precision", how_.sampling.precision, kProductPrecision).one_of(product_precisions());
  }

  std::vector<std::string> examples() const override {
    return {
        "voicebox --from runs/voicebox --durations runs/duration --vocoder runs/vocos --text \"Hello "
        "there.\" -o out.wav",
        "voicebox --from runs/voicebox --durations runs/duration --vocoder runs/vocos --aligner "
        "runs/aligner --text \"Hello there.\" --voice me.wav --voice_text \"My own words.\" -o out.wav",
        "voicebox --from runs/voicebox --durations runs/duration --vocoder runs/vocos --aligner "
        "runs/aligner --edit in.wav --edit_text \"The old sailor.\" --replace old --with \"young\" -o "
        "out.wav",
        "voicebox --from runs/voicebox --speech said.wav --voice me.wav -o out.wav"};
  }

  bool streams() const override { return true; }

  void run(const GenerationRun& run) override {
    if (from_.empty()) throw UsageError("expected --from RUN of voicebox, got none");
    const int wishes =
        !speech_.empty() + !text_.empty() + !text_file_.empty() + !edit_.empty() + !copy_.empty();
    if (wishes > 1 || (wishes == 0 && how_.seconds == 0))
      throw UsageError(
          "say what to make: one of --text WORDS, --text_file FILE, --edit RECORDING, --speech "
          "RECORDING, --copy RECORDING; or --seconds S alone, of a model that is told nothing");
    const at::NoGradGuard no_grad;
    how_.seed = run.seed;
    LoadedVoicebox loaded =
        load_voicebox(from_, weights_named(weights_), vocoder_, run.device, features_from_);
    if (!copy_.empty()) return copy(*loaded.features, run);
    if (loaded.told_by == "none") return make_untold(loaded, run);
    if (wishes == 0)
      throw UsageError("--seconds alone is for a model that is told nothing; say what to make: --text WORDS");
    if (loaded.told_by == "semantic") return say_tokens(loaded, run);
    refuse(run, {"speech", "semantic_from"}, "told by semantic tokens");
    if (durations_.empty())
      throw UsageError("a model that is told by phonemes needs --durations RUN: how long they last");
    KnownSpeech saved;
    if (!voice_.empty() && !std::filesystem::exists(voice_)) {
      const std::string path = voice_path(voices_folder(), voice_);
      require(std::filesystem::exists(path), "[voice] {} is neither a recording nor a saved voice ({})",
              voice_, path);
      saved = known_voice(load_voice(path), loaded);
    }
    Speaker speaker(std::move(loaded), SpeechDurations(durations_, run.device),
                    aligner_.empty() ? nullptr : std::make_unique<SpeechAligner>(aligner_, run.device));
    if (edit_.empty())
      read(speaker, saved, run);
    else
      edit(speaker, run);
  }

 private:
  void read(Speaker& speaker, const KnownSpeech& saved, const GenerationRun& run) const {
    KnownSpeech known = saved;
    if (!voice_.empty() && !saved.frames.defined())
      known = speaker.hear(voice_, words_of(voice_, voice_text_, "--voice_text"), voice_seconds_);
    const KnownSpeech* voice = voice_.empty() ? nullptr : &known;
    const auto texts = text_file_.empty() ? std::vector<std::string>{text_} : text_lines(text_file_);
    std::vector<Part> parts;
    int64_t sentences = 0;
    for (size_t line = 0; line < texts.size(); ++line)
      for (const ScriptPart& says : read_script(texts[line]))
        parts.push_back({static_cast<int64_t>(line), says, says.sentence.empty() ? -1 : sentences++, {}, {}});

    // What is to be heard at once is made piece by piece. A solver that chooses its own steps would see
    // padding.
    const bool alone = run.hear || runge_kutta(how_.sampling.solver.method).adaptive();
    const int64_t batch = alone ? 1 : batch_;
    const size_t at_once = run.hear ? 1 : static_cast<size_t>(batch * kBatchesSorted);
    std::vector<at::Tensor> waves;  // of the line
    OdeWork work;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i % at_once == 0) say(speaker, voice, parts, i, std::min(i + at_once, parts.size()), batch, run);
      Part& part = parts[i];
      if (run.hear) run.hear(wave_samples(part.wave), speaker.rate_hz());
      waves.push_back(std::move(part.wave));
      work += part.work;
      if (i + 1 < parts.size() && parts[i + 1].line == part.line) continue;
      write(numbered_path(run.out, part.line, static_cast<int64_t>(texts.size())), at::cat(waves),
            speaker.rate_hz(), work, run);
      waves.clear();
      work = {};
    }
  }

  void copy(const AudioFeatures& features, const GenerationRun& run) const {
    std::vector<std::string> paths = {copy_};
    if (!is_audio_extension(copy_)) {
      paths.clear();
      for (const ManifestEntry& entry : load_entries(copy_)) paths.push_back(entry.path);
    }
    const auto count = static_cast<int64_t>(paths.size());
    FigureMeans figures;
    for (int64_t i = 0; i < count; ++i) {
      const at::Tensor real = read_mono(paths[static_cast<size_t>(i)], features.rate_hz()).unsqueeze(0);
      const at::Tensor fake = features.decode(features.encode(real));  // [1, samples]
      const int64_t both = std::min(real.size(1), fake.size(1));
      figures.add(sound_figures(real.narrow(1, 0, both), fake.narrow(1, 0, both), features.rate_hz()));
      write(numbered_path(run.out, i, count), fake[0], features.rate_hz(), {}, run);
    }
    std::vector<std::string> means;
    for (const SoundFigure& figure : figures.means())
      means.push_back(fmt::format("{} {:.{}f}", figure.label, figure.value, figure.digits));
    run.say(fmt::format("beside the {}: {}", count == 1 ? "original" : fmt::format("{} originals", count),
                        fmt::join(means, ", ")));
  }

  // Settings that this model has no use for must not look as if they had done something.
  void refuse(const GenerationRun& run, const std::vector<const char*>& settings, const char* whose) const {
    for (const char* name : settings)
      if (run.given && run.given(name))
        throw UsageError(fmt::format("--{} is for a model that is {}; {} is not", name, whose, from_));
  }

  // A piece of what is said, in the order of the text.
  struct Part {
    int64_t line;
    ScriptPart says;
    int64_t sentence;  // its number among all sentences; -1: a pause
    at::Tensor wave;   // [samples]
    OdeWork work;      // of the solver for the batch that it was in
  };

  // Waves of the parts from `begin` to `end`, sentences of like length together.
  void say(Speaker& speaker, const KnownSpeech* voice, std::vector<Part>& parts, size_t begin, size_t end,
           int64_t batch, const GenerationRun& run) const {
    std::vector<Speaker::Sentence> sentences;
    std::vector<size_t> places;  // of them among the parts
    std::vector<int64_t> lengths;
    for (size_t i = begin; i < end; ++i) {
      const ScriptPart& says = parts[i].says;
      if (parts[i].sentence < 0) {
        parts[i].wave =
            at::zeros({std::llround(says.pause_seconds * static_cast<double>(speaker.rate_hz()))});
        continue;
      }
      sentences.push_back(speaker.prepare(says.sentence, voice, how_, parts[i].sentence));
      places.push_back(i);
      lengths.push_back(sentences.back().frames());
    }
    size_t done = end - sentences.size();
    for (const auto& numbers : batches_of_like_length(lengths, batch)) {
      std::vector<Speaker::Sentence> together;
      for (const int64_t number : numbers) together.push_back(sentences[static_cast<size_t>(number)]);
      OdeWork work;
      const std::vector<at::Tensor> waves = speaker.read(together, how_, work);
      for (size_t row = 0; row < waves.size(); ++row) {
        Part& part = parts[places[static_cast<size_t>(numbers[row])]];
        part.wave = waves[row];
        part.work = work;
      }
      done += waves.size();
      if (run.progress && parts.size() > 1)
        run.progress("reading", static_cast<int64_t>(done), static_cast<int64_t>(parts.size()));
    }
  }

  void edit(Speaker& speaker, const GenerationRun& run) const {
    const std::string says = words_of(edit_, edit_text_, "--edit_text");
    const Audio original = read_audio(edit_);
    require(original.channels == 1, "[edit] expected a mono recording, {} has {} channels", edit_,
            original.channels);
    const KnownSpeech speech = speaker.hear(edit_, says);
    Speaker::Remade remade;
    if (!denoise_.empty()) {
      if (denoise_.size() != 2) throw UsageError("--denoise: expected FROM TO in seconds, two numbers");
      remade = speaker.repair(speech, denoise_[0], denoise_[1], how_);
    } else {
      if (replace_.empty())
        throw UsageError("--edit needs --replace WORDS --with WORDS, or --denoise FROM TO");
      remade = speaker.replace(speech, with_words_replaced(says, replace_, with_), how_);
    }
    const at::Tensor plain = remade.wave.contiguous();
    std::vector<float> made = Resampler(static_cast<int>(speaker.rate_hz()), original.rate_hz)
                                  .run({plain.data_ptr<float>(), static_cast<size_t>(plain.numel())});
    const auto sample_at = [&](double seconds) {
      return std::min<int64_t>(std::llround(seconds * original.rate_hz), original.frames());
    };
    const int64_t from = sample_at(remade.from_seconds), to = sample_at(remade.to_seconds);
    // The same words take the same time, to the sample: another rate may round one off.
    if (!denoise_.empty()) made.resize(static_cast<size_t>(to - from));
    const std::vector<float> whole =
        splice(original.samples, made, from, to, std::llround(kFadeSeconds * original.rate_hz));
    run.say(fmt::format("made anew: {:.2f} to {:.2f} s, now {:.2f} s long", remade.from_seconds,
                        remade.to_seconds, static_cast<double>(made.size()) / original.rate_hz));
    write(run.out, at::tensor(whole), original.rate_hz, remade.work, run);
  }

  void write(const std::string& path, const at::Tensor& wave, int64_t rate_hz, const OdeWork& work,
             const GenerationRun& run) const {
    write_wave(path, wave, rate_hz);
    const bool adaptive = runge_kutta(how_.sampling.solver.method).adaptive();
    run.say(fmt::format(
        "{}  {:.2f} s at {} Hz, {} evaluations of the network{}", path,
        static_cast<double>(wave.numel()) / static_cast<double>(rate_hz), rate_hz, work.evaluations,
        adaptive ? fmt::format(" in {} steps, {} of them rejected", work.steps, work.rejected) : ""));
    compare(path, run);
  }

  void compare(const std::string& path, const GenerationRun& run) const {
    std::vector<std::pair<double, std::string>> distances;
    const at::Tensor made = compare_.empty() ? at::Tensor() : read_mono(path, kComparedRateHz);
    for (const std::string& other : compare_)
      distances.emplace_back(warped_mel_distance(made, read_mono(other, kComparedRateHz)), other);
    std::sort(distances.begin(), distances.end());
    for (const auto& [distance, other] : distances)
      run.say(fmt::format("{:.3f} warped mel distance to {}", distance, other));
  }

  void make_untold(LoadedVoicebox& loaded, const GenerationRun& run) const {
    refuse(run,
           {"text", "text_file", "edit", "speech", "batch", "speed", "durations", "aligner", "voice_text"},
           "told what to say");
    if (how_.seconds == 0)
      throw UsageError("a model that is told nothing needs --seconds S: how much to make");
    require(how_.sampling.guidance == 1, "[guidance] {} is told nothing: there is nothing to guide it by",
            from_);
    const AudioFeatures& features = *loaded.features;
    require_recording();
    const at::Tensor voice =
        voice_.empty() ? at::zeros({1, 0, features.dim()}) : voice_frames(loaded, voice_, voice_seconds_);
    const auto made = std::llround(how_.seconds * features.frames_per_second());
    hear_and_write(say_after(loaded, voice, {}, voice.size(1) + made, how_.sampling, run.seed),
                   features.rate_hz(), run);
  }

  void say_tokens(LoadedVoicebox& loaded, const GenerationRun& run) const {
    refuse(run, {"edit", "batch", "speed", "seconds", "durations", "aligner", "voice_text"},
           "told by phonemes");
    if (speech_.empty())
      throw UsageError(
          "this model is told by semantic tokens: give --speech RECORDING; texts are read by `melete "
          "generate spear-tts --voicebox RUN`");
    TokenSpeaker speaker(std::move(loaded), run.device, semantic_from_);
    require_recording();
    if (!voice_.empty()) speaker.take_voice(voice_, voice_seconds_);
    const SemanticTokenizer& tokenizer = speaker.tokenizer();
    const at::Tensor heard = tokenizer.tokenize(read_mono(speech_, tokenizer.rate_hz()).unsqueeze(0));
    hear_and_write(speaker.say(heard, how_.sampling, run.seed), speaker.rate_hz(), run);
  }

  void require_recording() const {
    require(voice_.empty() || std::filesystem::exists(voice_),
            "[voice] {} is no recording; voices that `voice save` kept are for models told by phonemes",
            voice_);
  }

  void hear_and_write(const Spoken& spoken, int64_t rate_hz, const GenerationRun& run) const {
    if (run.hear) run.hear(wave_samples(spoken.wave), rate_hz);
    write(run.out, spoken.wave, rate_hz, spoken.work, run);
  }

  std::string from_, speech_, text_, text_file_, voice_, voice_text_, weights_ = "ema";
  std::string durations_, aligner_, vocoder_, features_from_, semantic_from_, copy_, edit_, edit_text_,
      replace_, with_;
  std::vector<double> denoise_;
  std::vector<std::string> compare_;
  double voice_seconds_ = 3;
  int64_t batch_ = 1;
  Reading how_;
};

}  // namespace

std::unique_ptr<Generation> make_voicebox_generation() {
  return std::make_unique<VoiceboxGeneration>();
}

}  // namespace melete
