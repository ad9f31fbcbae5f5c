// `melete generate spear-tts`: text to semantic tokens, and on to sound.
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/base/human.h"
#include "data/base/passages.h"
#include "data/base/spoken_english.h"
#include "io/audio_tensor.h"
#include "io/base/atomic_file.h"
#include "systems/spear_tts/generation_sound.h"
#include "systems/spear_tts/load.h"
#include "systems/spear_tts/reading.h"
#include "systems/spear_tts/system.h"
#include "systems/spear_tts/text_to_tokens.h"

namespace melete {

namespace {

using namespace spear_tts;

constexpr size_t kReadingsShown = 8;  // of passages that are read back

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "[text_file] cannot read {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SpearGeneration final : public Generation {
 public:
  void describe(Schema& s) override {
    s.option("from", from_, "run or checkpoint of spear-text-to-semantic");
    s.option("text", text_, "what to say, in UTF-8");
    s.option("text_file", text_file_, "file with what to say; an empty line is a longer pause");
    s.option("normalise", normalise_, "write out numbers, dates and abbreviations, which takes English");
    s.option("longest_passage", longest_passage_, "longer sentences are said in parts")
        .at_least(10)
        .unit("characters");
    melete::spear_tts::describe(s, sound_);
    s.option("compare", compare_,
             "speculative: decode once more without drafts, and say how much sooner it was");
    s.option("read_back", read_back_,
             "run of spear-back-translate: reads what is said, and says how far from the text it is");
    s.option("weights", weights_,
             "ema: averaged, where there is an average; online: as the optimiser left them")
        .one_of({"ema", "online"});
    melete::spear_tts::describe(s, config_);
  }

  std::vector<std::string> examples() const override {
    return {"spear-tts --from runs/tts --text \"Hello there.\" -o tokens.txt",
            "spear-tts --from runs/tts --text \"Hello there.\" --coarse runs/coarse --fine runs/fine --voice "
            "me.wav -o out.wav",
            "spear-tts --from runs/tts --text \"Hello there.\" --voicebox runs/voicebox --vocoder runs/vocos "
            "-o out.wav"};
  }
  std::vector<std::string> extensions() const override { return {".wav", ".flac", ".ogg", ".txt"}; }
  bool streams() const override { return true; }

  void run(const GenerationRun& run) override {
    if (from_.empty()) throw UsageError("expected --from RUN of spear-text-to-semantic, got none");
    if (text_.empty() == text_file_.empty())
      throw UsageError("expected --text WORDS or --text_file FILE, one of them");
    const bool as_tokens = run.out.ends_with(".txt");
    if (!as_tokens && sound_.coarse.empty() == sound_.voicebox.empty())
      throw UsageError(
          "sound is made by AudioLM's coarse stage, --coarse RUN, or by --voicebox RUN: give one of them, or "
          "write tokens with -o x.txt");
    check_ways(run);
    const at::NoGradGuard no_grad;
    Reader reader = open_reader(from_, weights_named(weights_), run.device);
    const std::vector<Passage> parts = what_to_say();
    std::vector<std::string> texts;
    for (const Passage& part : parts) texts.push_back(part.text);
    TextToTokensReport report;
    const std::vector<at::Tensor> spoken =
        text_to_tokens(reader, texts, config_, run.seed, &report,
                       [&](int64_t done, int64_t of) { run.progress("tokens", done, of); });
    say_speed(reader, texts, spoken, report, run);
    if (!read_back_.empty()) say_errors(reader, texts, spoken, run);
    if (as_tokens) return write_tokens(spoken, run);
    write_sound(reader, spoken, parts, run);
  }

 private:
  // What would be passed over in silence is refused.
  void check_ways(const GenerationRun& run) const {
    const auto refuse = [&](std::initializer_list<const char*> settings, const char* why) {
      for (const char* name : settings)
        if (run.given(name)) throw UsageError(fmt::format("--{}: {}", name, why));
    };
    if (config_.beam > 0) {
      if (config_.speculative)
        throw UsageError("--beam searches and --speculative drafts what is drawn: give one of them");
      refuse({"temperature", "top_k", "top_p", "filter"}, "--beam draws nothing; leave out one of them");
    }
    if (sound_.voicebox.empty()) refuse({"vocoder", "steps"}, "goes with --voicebox");
    if (sound_.coarse.empty()) refuse({"fine", "codec"}, "goes with --coarse");
    if (!config_.speculative) refuse({"drafts", "compare"}, "goes with --speculative");
  }

  std::vector<Passage> what_to_say() const {
    std::string text = text_file_.empty() ? text_ : read_text_file(text_file_);
    if (normalise_) text = spoken_english(text);
    std::vector<Passage> parts = passages(text, static_cast<size_t>(longest_passage_));
    require(!parts.empty(), "[text] there is nothing to say in it");
    return parts;
  }

  void say_speed(Reader& reader, const std::vector<std::string>& texts, const std::vector<at::Tensor>& spoken,
                 const TextToTokensReport& report, const GenerationRun& run) const {
    const auto rate = [](const TextToTokensReport& of) {
      return static_cast<double>(of.tokens) / std::max(of.seconds, 1e-9);
    };
    run.say(fmt::format("{} passages, {} tokens in {}: {:.0f} a second", texts.size(), report.tokens,
                        human_seconds(report.seconds), rate(report)));
    if (!config_.speculative) return;
    const SpeculationReport& drafts = report.speculation;
    run.say(fmt::format(
        "drafts: {} of {} accepted ({:.0f} %), {:.2f} tokens for each pass of the late layers",
        drafts.accepted, drafts.drafted, 100 * drafts.acceptance(),
        static_cast<double>(report.tokens) / static_cast<double>(std::max<int64_t>(1, drafts.rounds))));
    if (!compare_) return;
    TextToTokensConfig plain = config_;
    plain.speculative = false;
    TextToTokensReport without;
    const std::vector<at::Tensor> same = text_to_tokens(reader, texts, plain, run.seed, &without);
    std::string verdict;
    if (config_.how.sampling.temperature == 0) {
      bool equal = true;
      for (size_t i = 0; i < spoken.size(); ++i) equal = equal && spoken[i].equal(same[i]);
      verdict = equal ? ", the same tokens" : ", other tokens: this should not be";
    }
    run.say(fmt::format("without drafts: {:.0f} tokens a second; with them {:.2f} times as fast{}",
                        rate(without), rate(report) / rate(without), verdict));
  }

  void say_errors(const Reader& speaker, const std::vector<std::string>& texts,
                  const std::vector<at::Tensor>& spoken, const GenerationRun& run) const {
    Reader judge = open_reader(read_back_, weights_named(weights_), kBackTranslateTask, run.device);
    require(judge.semantic_identity == speaker.semantic_identity,
            "[read_back] {} reads semantic tokens of {}, and {} makes those of {}", read_back_,
            judge.semantic_identity, from_, speaker.semantic_identity);
    ReadingErrors by_character, by_word;
    const std::vector<std::string> read = tokens_to_text(judge, spoken, config_.batch);
    for (size_t i = 0; i < texts.size(); ++i) {
      by_character += character_errors(read[i], texts[i]);
      by_word += word_errors(read[i], texts[i]);
      if (texts.size() <= kReadingsShown) run.say(fmt::format("text: {}\nread: {}", texts[i], read[i]));
    }
    run.say(fmt::format("read back: character error {:.1f} %, word error {:.1f} %",
                        100 * by_character.share(), 100 * by_word.share()));
  }

  // A line for each passage.
  void write_tokens(const std::vector<at::Tensor>& spoken, const GenerationRun& run) const {
    AtomicFile file(run.out);
    int64_t count = 0;
    for (const at::Tensor& row : spoken) {
      const at::Tensor plain = row.contiguous();
      const int64_t* const first = plain.data_ptr<int64_t>();
      file.write(fmt::format("{}\n", fmt::join(first, first + plain.numel(), " ")));
      count += plain.numel();
    }
    file.commit();
    run.say(fmt::format("{}  {} semantic tokens", run.out, count));
  }

  void write_sound(const Reader& reader, const std::vector<at::Tensor>& spoken,
                   const std::vector<Passage>& parts, const GenerationRun& run) const {
    const auto sound = open_token_sound(sound_, reader, from_, weights_named(weights_), run.device);
    std::vector<at::Tensor> waves;
    const auto add = [&](const at::Tensor& wave) {
      waves.push_back(wave);
      if (run.hear) run.hear(wave_samples(wave), sound->rate_hz());
    };
    for (size_t i = 0; i < spoken.size(); ++i) {
      const at::Tensor wave = sound->say(spoken[i], run.seed + i, run.progress);
      if (wave.numel() == 0) continue;
      add(wave);
      if (i + 1 < spoken.size())
        add(at::zeros({std::llround(parts[i].pause_seconds * static_cast<double>(sound->rate_hz()))}));
    }
    require(!waves.empty(), "[spear-tts] everything ended at once; nothing was written");
    const at::Tensor wave = at::cat(waves);
    write_wave(run.out, wave, sound->rate_hz());
    run.say(fmt::format("{}  {:.2f} s at {} Hz", run.out,
                        static_cast<double>(wave.numel()) / static_cast<double>(sound->rate_hz()),
                        sound->rate_hz()));
  }

  std::string from_, text_, text_file_, read_back_, weights_ = "ema";
  SoundConfig sound_;
  int64_t longest_passage_ = 300;
  bool normalise_ = true, compare_ = false;
  TextToTokensConfig config_;
};

}  // namespace

std::unique_ptr<Generation> make_spear_tts_generation() {
  return std::make_unique<SpearGeneration>();
}

}  // namespace melete
