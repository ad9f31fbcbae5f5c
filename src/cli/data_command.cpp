#include "cli/data_command.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/align_command.h"
#include "cli/arguments.h"
#include "cli/pairs_command.h"
#include "cli/terminal.h"
#include "cli/text_tokenizer_command.h"
#include "cli/tokenize_command.h"
#include "config/nearest.h"
#include "core/base/error.h"
#include "data/base/inspect.h"
#include "data/base/inspect_pictures.h"
#include "data/base/manifest.h"
#include "data/base/synth_music.h"
#include "data/base/synth_pictures.h"
#include "data/base/synth_speech.h"

namespace melete {

namespace {

constexpr size_t kMostNamedFiles = 20;

// A bar that appears with the first report, when the total is known.
class Progress {
 public:
  explicit Progress(std::string label) : label_(std::move(label)) {}

  ProgressCallback callback() {
    return [this](int64_t done, int64_t total) {
      if (!bar_) bar_.emplace(label_, total, "files");
      bar_->update(done);
    };
  }
  void finish() {
    if (bar_) bar_->finish();
  }

 private:
  std::string label_;
  std::optional<ProgressBar> bar_;
};

void require_given(const std::string& value, const char* flag, const char* example) {
  if (value.empty()) throw UsageError(fmt::format("expected {}, got none; for example {}", flag, example));
}

void print_skipped(const std::vector<SkippedFile>& skipped) {
  if (skipped.empty()) return;
  fmt::print("\n{} skipped:\n", skipped.size());
  for (size_t i = 0; i < std::min(kMostNamedFiles, skipped.size()); ++i) {
    // Reasons from the audio reader name the file themselves.
    const bool named = skipped[i].reason.find(skipped[i].path) != std::string::npos &&
                       skipped[i].reason.find("needs ffmpeg") == std::string::npos;
    fmt::print("  {}\n", named ? skipped[i].reason : skipped[i].path + ": " + skipped[i].reason);
  }
  if (skipped.size() > kMostNamedFiles) fmt::print("  ... and {} more\n", skipped.size() - kMostNamedFiles);
}

// What index, check and stats are told about pictures.
struct PictureWords {
  std::string kind = "recordings", captions = "auto", caption_column = "text";

  void describe(Arguments& arguments) {
    arguments.option("kind", kind, "what is in there").one_of({"recordings", "pictures"});
    arguments
        .option("captions", captions,
                "of pictures in a folder: from a .txt beside each, the name of its folder, or the first "
                "of those that there is")
        .one_of({"auto", "text", "folder"});
    arguments.option("caption_column", caption_column, "of pictures in a list: where the caption stands");
  }
  bool pictures() const { return kind == "pictures"; }
  std::vector<ManifestEntry> load(const std::string& from) const {
    return load_pictures(from, captions_named(captions), caption_column);
  }
};

int index_pictures(const std::string& folder, const std::string& out, const PictureWords& words) {
  Progress progress("indexing");
  const auto pictures = words.load(folder);
  const auto skipped = write_picture_list(out, pictures, progress.callback());
  progress.finish();
  const auto with_text = std::count_if(pictures.begin(), pictures.end(),
                                       [](const ManifestEntry& entry) { return !entry.text.empty(); });
  fmt::print("{}: {} pictures, {} with a caption\n", out, pictures.size() - skipped.size(), with_text);
  print_skipped(skipped);
  return 0;
}

int index_command(const std::vector<std::string>& args) {
  std::string folder, out, tags = "none";
  PictureWords words;
  Arguments arguments("data index",
                      "lists every recording or picture of a folder, with its text, in a manifest");
  arguments.word("folder", folder, "folder of recordings or pictures");
  arguments.option("out", out, "manifest to write (.jsonl)");
  arguments.option("tags", tags, "of recordings: the name of each one's folder, as the class that it is of")
      .one_of({"none", "folder"});
  words.describe(arguments);
  arguments.alias("o", "out");
  arguments.example("data index recordings -o recordings/manifest.jsonl");
  arguments.example("data index instruments --tags folder -o instruments.jsonl");
  arguments.example("data index shapes --kind pictures -o shapes/list.jsonl");
  if (!arguments.parse(args)) return 0;
  require_given(out, "-o MANIFEST", "-o manifest.jsonl");
  if (words.pictures()) return index_pictures(folder, out, words);

  Progress progress("indexing");
  FolderIndex index = index_folder(folder, progress.callback());
  progress.finish();
  if (tags == "folder")
    for (ManifestEntry& entry : index.entries)
      if (const std::string name = class_by_folder(entry.path, folder); !name.empty()) entry.tags = {name};
  if (index.entries.empty()) {
    print_skipped(index.skipped);
    fail("[data index] no recordings that can be read (wav, flac, mp3, ogg, opus, aiff) in {}", folder);
  }
  write_manifest(out, index.entries);
  double seconds = 0;
  int64_t with_text = 0;
  for (const ManifestEntry& entry : index.entries) {
    seconds += entry.duration_seconds;
    with_text += !entry.text.empty();
  }
  fmt::print("{}: {} recordings, {}, {} with text\n", out, index.entries.size(), human_seconds(seconds),
             with_text);
  print_skipped(index.skipped);
  return 0;
}

int check_command(const std::vector<std::string>& args) {
  std::string what;
  CheckLimits limits;
  PictureLimits picture_limits;
  PictureWords words;
  int64_t rows = 50;
  Arguments arguments(
      "data check",
      "finds recordings that are unreadable, empty, clipped, silent or too short, or pictures that are "
      "unreadable, damaged, tiny, of one colour or there twice; exits with 1 when there are any");
  arguments.word("what", what, "folder or manifest");
  arguments.option("min_seconds", limits.min_seconds, "shorter recordings are too short")
      .at_least(0)
      .unit("s");
  arguments.option("silence", limits.silence_dbfs, "recordings with a lower peak are silent").unit("dBFS");
  words.describe(arguments);
  arguments.option("min_side", picture_limits.min_side, "pictures with a shorter side are tiny")
      .at_least(1)
      .unit("pixels");
  arguments
      .option("duplicate_bits", picture_limits.duplicate_bits,
              "of 128 bits of two pictures' looks that may differ in duplicates; -1: none are sought")
      .at_least(-1)
      .at_most(7);
  arguments.option("rows", rows, "files to name at most").at_least(1);
  arguments.example("data check recordings");
  arguments.example("data check shapes --kind pictures --min_side 64");
  if (!arguments.parse(args)) return 0;

  Progress progress("checking");
  if (words.pictures()) {
    const PictureReport report = check_pictures(words.load(what), picture_limits, progress.callback());
    progress.finish();
    fmt::print("{}", report.table(static_cast<size_t>(rows)));
    return report.findings.empty() ? 0 : 1;
  }
  const CheckReport report = check_data(what, limits, progress.callback());
  progress.finish();
  fmt::print("{}", report.table(static_cast<size_t>(rows)));
  return report.findings.empty() ? 0 : 1;
}

int stats_command(const std::vector<std::string>& args) {
  std::string what;
  bool loudness = true;
  PictureWords words;
  Arguments arguments("data stats",
                      "shows durations, rates, channels and loudness of recordings, or sizes, colours and "
                      "captions of pictures");
  arguments.word("what", what, "folder or manifest");
  arguments.option("loudness", loudness, "measure loudness, which reads every file whole");
  words.describe(arguments);
  arguments.example("data stats recordings");
  arguments.example("data stats shapes --kind pictures");
  if (!arguments.parse(args)) return 0;

  Progress progress("measuring");
  if (words.pictures()) {
    const PictureStats stats = picture_stats(words.load(what), progress.callback());
    progress.finish();
    fmt::print("{}", stats.render(std::min(terminal_width(stdout), 100)));
    return 0;
  }
  const DataStats stats = data_stats(what, loudness, progress.callback());
  progress.finish();
  fmt::print("{}", stats.render(std::min(terminal_width(stdout), 100)));
  return 0;
}

int synth_command(const std::vector<std::string>& args) {
  std::string kind = "music";
  SynthOptions options;
  SpeechStyle speech;
  int64_t seed = 0, rate_hz = options.rate_hz, side_pixels = 64;
  Arguments arguments("data synth",
                      "makes recordings or pictures with text to train on: the same words, the same bytes");
  arguments.option("kind", kind, "what to make; speech needs espeak-ng")
      .one_of({"music", "speech", "pictures"});
  arguments.option("out", options.folder, "folder to write to");
  arguments.option("count", options.count, "how many").at_least(1).at_most(1e7);
  arguments.option("seed", seed, "another seed, other recordings").at_least(0);
  arguments.option("rate", rate_hz, "sample rate").at_least(4000).at_most(192000).unit("Hz");
  arguments.option("seconds", options.seconds, "length of each; 0: 4 s of music, one sentence of speech")
      .at_least(0)
      .at_most(600)
      .unit("s");
  arguments.option("format", options.format, "file format of recordings").one_of({"flac", "wav"});
  arguments.option("voices", speech.voices, "speech: so many, at about one speed; 0: all there are, at any")
      .at_least(0)
      .at_most(13);
  arguments.option("short_sentences", speech.short_sentences, "speech: 40 words, four to six at a time");
  arguments.option("varied", speech.varied, "speech: hundreds of words, all sounds of English");
  arguments
      .option("pace", options.words_per_minute,
              "speech: everything at this pace and at one level; 0: each in its own way")
      .at_least(0)
      .at_most(450)
      .unit("words/min");
  arguments.option("texts", options.texts, "speech: file of what to say, a line for each recording");
  arguments.option("size", side_pixels, "sides of pictures").at_least(8).at_most(4096).unit("pixels");
  arguments.option("voice", options.voice, "speech: who says everything, for example en-us+f3; else many");
  arguments.option("timings", options.timings, "speech: file for the times of its phonemes (.jsonl)");
  arguments.alias("o", "out");
  arguments.example("data synth --kind music -o music --count 200 --seed 1");
  arguments.example("data synth --kind pictures -o shapes --count 2000 --size 32");
  if (!arguments.parse(args)) return 0;
  require_given(options.folder, "-o FOLDER", "-o recordings");
  if (kind != "speech" && !(options.voice.empty() && options.timings.empty() && options.texts.empty()))
    throw UsageError(
        fmt::format("--voice, --timings and --texts are for --kind speech, got --kind {}", kind));
  options.seed = static_cast<uint64_t>(seed);
  options.rate_hz = static_cast<int>(rate_hz);

  Progress progress("making " + kind);
  if (kind == "pictures") {
    synth_pictures({options.folder, options.count, options.seed, static_cast<int>(side_pixels)},
                   progress.callback());
    progress.finish();
    fmt::print("{} pictures with captions in {}\n", options.count, options.folder);
    return 0;
  }
  if (kind == "music") {
    synth_music(options, progress.callback());
  } else {
    options.count = synth_speech(options, progress.callback(), speech);
  }
  progress.finish();
  fmt::print("{} recordings of {} with text in {}\n", options.count, kind, options.folder);
  return 0;
}

struct DataCommand {
  const char* name;
  const char* help;
  int (*run)(const std::vector<std::string>&);
};

constexpr DataCommand kCommands[] = {
    {"index", "list every recording or picture of a folder in a manifest", index_command},
    {"check", "find recordings or pictures that would hurt a training run", check_command},
    {"stats", "show what recordings or pictures are like", stats_command},
    {"synth", "make music, speech or pictures to train on", synth_command},
    {"tokenize", "make tokens once, for semantic, coarse and fine models", tokenize_command},
    {"align", "find when each phoneme is said", align_command},
    {"text-tokenizer", "fit pieces of words to the texts of recordings", text_tokenizer_command},
    {"back-translate", "read untranscribed speech as text: pairs for SPEAR-TTS", back_translate_command},
    {"pairs", "spear-tts-pytorch's generated pairs to a folder of tokens, or back", pairs_command},
};

std::string data_help() {
  std::string out =
      "melete data: recordings to train on\n\nusage: melete data <command> [words] [options]\n\n";
  for (const DataCommand& command : kCommands) out += fmt::format("  {:<16}{}\n", command.name, command.help);
  return out + "\n`melete data <command> --help` shows what each one takes.\n";
}

}  // namespace

int data_command(const std::vector<std::string>& args) {
  std::vector<std::string> names;
  for (const DataCommand& command : kCommands) names.push_back(command.name);
  if (args.empty()) throw UsageError(fmt::format("expected one of: data {}", fmt::join(names, ", data ")));
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    fmt::print("{}", data_help());
    return 0;
  }
  for (const DataCommand& command : kCommands)
    if (args[0] == command.name) return command.run({args.begin() + 1, args.end()});
  throw UsageError(fmt::format("unknown command 'data {}'; did you mean 'data {}'?", args[0].substr(0, 80),
                               nearest_word(args[0], names)));
}

}  // namespace melete
