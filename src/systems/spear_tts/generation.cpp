// `melete generate spear-tts`: text to semantic tokens, and on to sound through AudioLM's coarse and fine
// stages.
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
#include "roles/open.h"
#include "systems/audiolm/load.h"
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
    s.option("coarse", coarse_, "run of AudioLM's coarse stage: makes sound of the tokens");
    s.option("fine", fine_, "run of its fine stage; without one, sound is coarse");
    s.option("codec", codec_, "codec; default: the one the coarse stage was trained with");
    s.option("voice", voice_, "recording whose voice is to speak, at any rate");
    s.option("voice_seconds", voice_seconds_, "take only this much of it").at_least(0.1).unit("s");
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
            "me.wav -o out.wav"};
  }
  std::vector<std::string> extensions() const override { return {".wav", ".flac", ".ogg", ".txt"}; }
  bool streams() const override { return true; }

  void run(const GenerationRun& run) override {
    if (from_.empty()) throw UsageError("expected --from RUN of spear-text-to-semantic, got none");
    if (text_.empty() == text_file_.empty())
      throw UsageError("expected --text WORDS or --text_file FILE, one of them");
    const bool as_tokens = run.out.ends_with(".txt");
    if (!as_tokens && coarse_.empty())
      throw UsageError(
          "sound is made by AudioLM's coarse stage: give --coarse RUN, or write tokens with -o x.txt");
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
    const auto coarse_run = load_stage<CoarseTransformer, CoarseConfig>(coarse_, "spear-tts", "coarse",
                                                                        weights_named(weights_), run.device);
    require(setting_of(coarse_run, "semantic_identity").empty() || reader.semantic_identity.empty() ||
                setting_of(coarse_run, "semantic_identity") == reader.semantic_identity,
            "[spear-tts] {} was trained on semantic tokens of {}, and {} makes those of {}", coarse_run.path,
            setting_of(coarse_run, "semantic_identity"), from_, reader.semantic_identity);
    CoarseTransformer coarse = coarse_run.model;
    FineTransformer fine{nullptr};
    if (!fine_.empty())
      fine = load_stage<FineTransformer, FineConfig>(fine_, "spear-tts", "fine", weights_named(weights_),
                                                     run.device)
                 .model;
    const std::string codec_path = codec_.empty() ? setting_of(coarse_run, "codec_from") : codec_;
    require(!codec_path.empty(), "[spear-tts] {} does not say where its codec is; give --codec RUN",
            coarse_run.path);
    const auto codec = open_codec(codec_path, Weights::best, run.device);

    // A voice is told by a prompt: its tokens before the new ones, and its codes.
    at::Tensor voice_tokens = at::empty({1, 0}, at::kLong), voice_codes;
    if (!voice_.empty()) {
      const std::string tokenizer =
          reader.semantic_from.empty() ? setting_of(coarse_run, "semantic_from") : reader.semantic_from;
      require(!tokenizer.empty(), "[spear-tts] neither run says where its tokenizer is, which a voice needs");
      const auto semantic = open_semantic_tokenizer(tokenizer, run.device);
      voice_tokens = semantic->tokenize(read_mono(voice_, semantic->rate_hz(), voice_seconds_).unsqueeze(0));
      voice_codes = codec->encode(read_mono(voice_, codec->rate_hz(), voice_seconds_).unsqueeze(0))
                        .narrow(2, 0, coarse->config().quantizers)
                        .to(run.device);
    }
    std::vector<at::Tensor> waves;
    const auto add = [&](const at::Tensor& wave) {
      waves.push_back(wave);
      if (run.hear) run.hear(wave_samples(wave), codec->rate_hz());
    };
    for (size_t i = 0; i < spoken.size(); ++i) {
      RowDraws draws(run.seed + i, "coarse", 1), fine_draws(run.seed + i, "fine", 1);
      StageRequest request;
      request.draws = &draws;
      request.progress = [&](int64_t done, int64_t of) { run.progress("coarse", done, of); };
      const at::Tensor tokens = at::cat({voice_tokens, spoken[i].unsqueeze(0)}, 1).to(run.device);
      // Nobody knows how long it will take to say: the model ends it.
      const auto longest =
          static_cast<int64_t>(static_cast<double>(spoken[i].numel()) * 0.2 * codec->frames_per_second());
      at::Tensor codes = generate_coarse(coarse, tokens, voice_codes, std::max<int64_t>(longest, 1), request);
      const int64_t before = voice_codes.defined() ? voice_codes.size(1) : 0;
      codes = codes.narrow(1, before, codes.size(1) - before);
      codes = codes.index({at::indexing::Slice(), codes[0].ne(kPadding).all(-1)});
      if (codes.size(1) == 0) continue;
      if (!fine.is_empty()) {
        request.draws = &fine_draws;
        request.progress = [&](int64_t done, int64_t of) { run.progress("fine", done, of); };
        codes = at::cat({codes, generate_fine(fine, codes, {}, request)}, 2);
      }
      add(codec->decode(codes)[0].to(at::kCPU));
      if (i + 1 < spoken.size())
        add(at::zeros({std::llround(parts[i].pause_seconds * static_cast<double>(codec->rate_hz()))}));
    }
    require(!waves.empty(), "[spear-tts] the coarse stage ended at once; nothing was written");
    const at::Tensor wave = at::cat(waves);
    write_wave(run.out, wave, codec->rate_hz());
    run.say(fmt::format("{}  {:.2f} s at {} Hz", run.out,
                        static_cast<double>(wave.numel()) / static_cast<double>(codec->rate_hz()),
                        codec->rate_hz()));
  }

  std::string from_, text_, text_file_, coarse_, fine_, codec_, voice_, read_back_, weights_ = "ema";
  double voice_seconds_ = 3;
  int64_t longest_passage_ = 300;
  bool normalise_ = true, compare_ = false;
  TextToTokensConfig config_;
};

}  // namespace

std::unique_ptr<Generation> make_spear_tts_generation() {
  return std::make_unique<SpearGeneration>();
}

}  // namespace melete
