// `melete generate musiclm`: several pieces from a sentence or in the manner of a recording, and which fits
// best.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "data/base/text_lines.h"
#include "io/audio_tensor.h"
#include "io/base/audio_file.h"
#include "systems/musiclm/load.h"
#include "systems/musiclm/long_piece.h"
#include "systems/musiclm/system.h"

namespace melete {

namespace {

class MusicLmGeneration final : public Generation {
 public:
  MusicLmGeneration() { request_.audiolm.may_end = false; }

  void describe(Schema& s) override {
    s.option("from", from_, "folder of runs: finds the parts that are not given");
    s.option("semantic", paths_.semantic, "run or checkpoint of musiclm-semantic");
    s.option("coarse", paths_.coarse, "run or checkpoint of musiclm-coarse");
    s.option("fine", paths_.fine, "run or checkpoint of musiclm-fine; without one, sound is coarse");
    s.option("embedding", paths_.embedding, "run of mulan; default: the one they were trained with");
    s.option("tokenizer", paths_.tokenizer, "semantic tokenizer; default: the one they were trained with");
    s.option("codec", paths_.codec, "codec; default: the one they were trained with");
    s.option("text", text_, "what to play");
    s.option("texts", texts_, "file of such texts, one a line: a piece of each, with its text beside it");
    s.option("like", like_, "recording that it shall resemble, instead of the text or averaged with it");
    s.option("like_share", request_.like_share, "share of that recording where there is a text, too")
        .at_least(0)
        .at_most(1);
    s.option("story", story_,
             "texts that follow each other: \"0 a slow organ; 10 a fast drum beat\", or a .txt with a part a "
             "line");
    s.option("window_seconds", long_.window_seconds,
             "longer pieces are made in windows of this length: what the stages were trained on; 0: at once")
        .at_least(0)
        .unit("s");
    s.option("overlap_seconds", long_.overlap_seconds, "what a window hears of the one before it")
        .at_least(0.01)
        .unit("s");
    s.option("prompt", prompt_, "recording to go on from, at any rate");
    s.option("prompt_seconds", prompt_seconds_, "take only this much of it; 0: all").at_least(0).unit("s");
    s.option("seconds", request_.audiolm.seconds, "how much new sound").at_least(0.01).unit("s");
    s.option("samples", request_.samples, "pieces that are made, of which the joint embedding finds the best")
        .at_least(1);
    s.option("keep_all", keep_all_, "write every piece, not only the best");
    s.option("until_end", request_.audiolm.may_end,
             "stop where a model says the sound ends: for models trained on whole recordings");
    s.option("weights", weights_,
             "ema: averaged, where there is an average; online: as the optimiser left them")
        .one_of({"ema", "online"});
    melete::describe(s, sampling_);
  }

  std::vector<std::string> examples() const override {
    return {"musiclm --from runs --text \"a slow sad piano\" --samples 4 --seconds 5 -o out.wav",
            "musiclm --from runs --like song.wav --samples 4 --keep_all -o out.wav",
            "musiclm --from runs --text \"bells\" --seconds 30 --window_seconds 4 --overlap_seconds 2 -o "
            "long.wav",
            "musiclm --from runs --texts captions.txt --samples 4 --seconds 2 -o made/piece.wav",
            "musiclm --from runs --story \"0 a slow organ; 8 a fast drum beat\" --seconds 16 -o story.wav"};
  }

  void run(const GenerationRun& run) override {
    refuse_what_means_nothing();
    const std::vector<std::string> texts =
        texts_.empty() ? std::vector<std::string>{text_} : text_lines(texts_);
    musiclm::LongPieceConfig parts = long_;
    if (!story_.empty()) parts.story = musiclm::parse_story(story_words());
    if (!from_.empty()) find_parts(from_, paths_);
    musiclm::MusicLm model = musiclm::load_musiclm(paths_, weights_named(weights_), run.device);
    musiclm::MusicRequest request = request_;
    if (!like_.empty()) {
      request.like_rate_hz = model.embedding->rate_hz();
      request.like = read_mono(like_, request.like_rate_hz, 0);
    }
    AudioLmRequest& inner = request.audiolm;
    if (!prompt_.empty()) {
      inner.prompt_rate_hz = probe_audio(prompt_).rate_hz;
      inner.prompt = read_mono(prompt_, inner.prompt_rate_hz, prompt_seconds_);
    }
    inner.semantic = inner.coarse = inner.fine = sampling_;
    inner.progress = run.progress;
    check_texts(run, *model.embedding, texts, parts);
    for (size_t i = 0; i < texts.size(); ++i) {
      request.text = texts[i];
      inner.seed = i == 0 ? run.seed : random_key(run.seed, "text", {static_cast<uint64_t>(i)});
      const musiclm::MusicResult result = musiclm::generate_long(model, request, parts);
      if (texts.size() > 1) run.say(fmt::format("{}{}", i == 0 ? "" : "\n", texts[i]));
      say_windows(run, request, parts);
      write_pieces(run, result, model.audiolm.codec->rate_hz(), {texts, i});
    }
  }

 private:
  void refuse_what_means_nothing() const {
    if (text_.empty() && texts_.empty() && like_.empty() && story_.empty())
      throw UsageError("expected --text WORDS, --texts FILE, --story PARTS or --like FILE, got none of them");
    if (!text_.empty() && !texts_.empty())
      throw UsageError("--texts has a text of its own for every piece; leave --text out");
    if (!story_.empty() && !(text_.empty() && texts_.empty()))
      throw UsageError(
          fmt::format("--story has texts of its own; leave --{} out", text_.empty() ? "texts" : "text"));
  }

  // The option, or what is in the file that it names.
  std::string story_words() const {
    if (!story_.ends_with(".txt")) return story_;
    std::ifstream file(story_);
    require(file.good(), "[story] there is no file {}", story_);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
  }

  void say_windows(const GenerationRun& run, const musiclm::MusicRequest& request,
                   const musiclm::LongPieceConfig& parts) const {
    const auto windows = musiclm::plan_windows(request.audiolm.seconds, request.text, parts);
    if (windows.size() == 1) return;
    run.say(fmt::format("{} windows that overlap by {} s", windows.size(), parts.overlap_seconds));
    for (const musiclm::PieceWindow& window : windows)
      run.say(fmt::format("{:>7.2f} to {:.2f} s  {}", window.begin_seconds,
                          window.begin_seconds + window.seconds, window.text));
    run.say("");
  }

  // Before the work, not after half of it.
  void check_texts(const GenerationRun& run, const JointEmbedding& embedding, std::vector<std::string> texts,
                   const musiclm::LongPieceConfig& parts) const {
    for (const musiclm::StoryPart& part : parts.story) texts.push_back(part.text);
    int64_t cut = 0;
    for (const std::string& text : texts) {
      if (text.empty()) continue;  // a recording stands for it
      const TextFit fit = embedding.fit(text);
      require(!fit.wordless, "[text] `{}` has no words", text);
      cut += fit.cut ? 1 : 0;
    }
    if (cut > 0) run.say(fmt::format("texts longer than what the embedding reads, and cut: {}", cut));
  }

  struct OneOf {
    const std::vector<std::string>& texts;
    size_t number;
  };
  void write_pieces(const GenerationRun& run, const musiclm::MusicResult& result, int64_t rate_hz,
                    const OneOf& text) const {
    const at::Tensor scores = result.scores.to(at::kCPU, at::kDouble).contiguous();
    const auto texts = static_cast<int64_t>(text.texts.size()), number = static_cast<int64_t>(text.number);
    run.say("piece   score  seconds  file");
    for (int64_t piece = 0; piece < request_.samples; ++piece) {
      const at::Tensor& wave = result.audiolm.waves[static_cast<size_t>(piece)];
      const bool best = piece == result.best;
      std::string file = best ? "the best, " : "";
      if (wave.numel() == 0) {
        file += "ended at once; nothing was written";
      } else if (best || keep_all_) {
        const std::string path =
            keep_all_ ? numbered_path(run.out, number * request_.samples + piece, texts * request_.samples)
                      : numbered_path(run.out, number, texts);
        write_wave(path, wave, rate_hz);
        if (!texts_.empty()) write_text_beside(path, text.texts[text.number]);
        file += path;
      } else {
        file += "not kept";
      }
      run.say(fmt::format("{:>5}  {:+.3f}  {:>7.2f}  {}", piece, scores.data_ptr<double>()[piece],
                          static_cast<double>(wave.numel()) / static_cast<double>(rate_hz), file));
    }
  }

  std::string from_, text_, texts_, like_, prompt_, story_, weights_ = "ema";
  double prompt_seconds_ = 0;
  bool keep_all_ = false;
  musiclm::MusicLmPaths paths_;
  musiclm::MusicRequest request_;
  musiclm::LongPieceConfig long_;
  SamplingConfig sampling_;
};

}  // namespace

std::unique_ptr<Generation> make_musiclm_generation() {
  return std::make_unique<MusicLmGeneration>();
}

}  // namespace melete
