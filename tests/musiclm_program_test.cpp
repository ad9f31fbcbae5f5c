// MuLaN and MusicLM as a person runs them: tiny models that have hardly been trained, through the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "data/base/manifest.h"
#include "data/base/synth_music.h"
#include "io/base/audio_file.h"
#include "pretrained/import.h"
#include "run/run_folder.h"
#include "small_codec.h"
#include "systems/musiclm/embedding_folder.h"
#include "systems/musiclm/load.h"

namespace melete {
namespace musiclm_program_test {

namespace fs = std::filesystem;
using ::melete::testing::read_bytes;
using ::melete::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

struct Said {
  int code = 0;
  std::string text;  // both streams
};

Said say(const Words& words) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Said said;
  said.code = run_program(words);
  said.text = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
  return said;
}

std::string run(const Words& words) {
  const Said said = say(words);
  EXPECT_EQ(said.code, 0) << said.text;
  return said.text;
}

// A dozen pieces of a second with their captions.
const std::string& music() {
  static const TemporaryFolder folder;
  static const std::string made = [] {
    SynthOptions options;
    options.folder = folder / "music";
    options.count = 12;
    options.seed = 3;
    options.rate_hz = 8000;
    options.seconds = 1;
    options.format = "wav";
    synth_music(options);
    return options.folder;
  }();
  return made;
}

Words mulan(const std::string& out, const Words& more = {}) {
  Words words = {"train", "mulan", "--out", out, "--batch_size", "4", "--threads", "1"};
  for (const std::string tower : {"--model.audio.transformer.", "--model.text.transformer."}) {
    const Words sizes = {tower + "dim",   "32", tower + "depth",    "1",
                         tower + "heads", "1",  tower + "head_dim", "32"};
    words.insert(words.end(), sizes.begin(), sizes.end());
  }
  const Words rest = {"--model.sample_rate_hz",
                      "8000",
                      "--model.dim",
                      "16",
                      "--model.audio.spectrogram.n_fft",
                      "128",
                      "--model.audio.spectrogram.window",
                      "128",
                      "--model.audio.spectrogram.hop",
                      "64",
                      "--data.segment_seconds",
                      "0.5",
                      "--data.workers",
                      "1",
                      "--train.sample_every",
                      "0",
                      "--data.valid_fraction",
                      "0.25"};
  words.insert(words.end(), rest.begin(), rest.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Where the last step of a run is, and what it was told.
struct Last {
  int64_t step = 0, steps = 0;
  double epochs = 0;
};
Last last_of(const std::string& out) {
  const auto found = latest_usable(out, [](const std::string&) {});
  const auto& config = found.value().checkpoint.meta.at("config");
  return {found->checkpoint.step(), config.at("train").at("steps"), config.at("epochs")};
}

TEST(MulanProgram, OneEpochUnlessStepsOrEpochsAreGiven) {
  TemporaryFolder folder;
  const std::string one = folder / "one", two = folder / "two", given = folder / "given";
  // 9 of 12 pieces are trained on, four a step: three steps for 9 items, five for 18, nine for 36.
  EXPECT_THAT(run(mulan(one, {"--data", music()})), HasSubstr("epochs: 1, which are 3 steps"));
  EXPECT_EQ(last_of(one).step, 3);
  EXPECT_EQ(last_of(one).steps, 3);
  run({"train", "mulan", "--out", one, "--resume", "--steps", "4"});
  EXPECT_EQ(last_of(one).step, 4);
  run(mulan(two, {"--data", music(), "--epochs", "2"}));
  EXPECT_EQ(last_of(two).step, 5);
  run({"train", "mulan", "--out", two, "--resume", "--steps", "7"});
  EXPECT_EQ(last_of(two).step, 7) << "the epochs of its beginning must not count again";
  EXPECT_EQ(last_of(two).epochs, 0);
  run({"train", "mulan", "--out", two, "--resume", "--epochs", "4"});
  EXPECT_EQ(last_of(two).step, 9);
  run(mulan(given, {"--data", music(), "--steps", "2"}));
  EXPECT_EQ(last_of(given).step, 2);
}

// The tokenizer's file is gone when the model is used, and when it is trained on.
TEST(MulanProgram, TokenizersOfFilesAreInTheCheckpoint) {
  TemporaryFolder folder;
  std::ofstream(folder / "merges.txt")
      << "#version: 0.2\no r\nor g\na n</w>\norg an</w>\ns l\nsl o\nslo w</w>\n";
  fs::copy_file(MELETE_SOURCE_DIR "/tests/base/sentencepiece/spiece.model", folder / "spiece.model");
  for (const Words& tokenizer : {Words{"clip", "--text.merges", folder / "merges.txt"},
                                 Words{"sentencepiece", "--text.sentencepiece", folder / "spiece.model"}}) {
    SCOPED_TRACE(tokenizer.front());
    const std::string out = folder / tokenizer.front();
    Words more = {"--data", music(), "--steps", "1", "--text.tokenizer"};
    more.insert(more.end(), tokenizer.begin(), tokenizer.end());
    run(mulan(out, more));
    const at::Tensor before = musiclm::load_mulan(out).embedding->embed_text({"a slow organ", "bells"});
    fs::rename(tokenizer[2], tokenizer[2] + ".gone");
    const musiclm::LoadedMulan alone = musiclm::load_mulan(out);
    EXPECT_TRUE(at::equal(alone.embedding->embed_text({"a slow organ", "bells"}), before));
    EXPECT_FALSE(at::equal(before[0], before[1]));
    run({"train", "mulan", "--out", out, "--resume", "--steps", "2"});
    EXPECT_EQ(last_of(out).step, 2);
    fs::rename(tokenizer[2] + ".gone", tokenizer[2]);
  }
}

// Lion's one moment goes into musiclm-pytorch's package and comes back; the merges make texts readable.
TEST(MulanProgram, LionAndMergesSurviveAPackage) {
  TemporaryFolder folder;
  const std::string merges = folder / "merges.txt", run_of = folder / "run", package = folder / "mulan.2.pt",
                    back = folder / "back";
  std::ofstream(merges) << "#version: 0.2\no r\nor g\na n</w>\norg an</w>\ns l\nsl o\nslo w</w>\n";
  run(mulan(run_of, {"--data", music(), "--steps", "2", "--text.tokenizer", "clip", "--text.merges", merges,
                     "--task.optimiser.kind", "lion", "--task.optimiser.learning_rate", "1e-4"}));
  run({"export", run_of, "-o", package, "--for", "training"});
  run({"import", "musiclm-pytorch", package, "-o", back, "--arguments",
       "merges=" + merges + ",audio.spec_n_fft=128,audio.spec_hop_length=64"});
  const auto ours = latest_usable(run_of, [](const std::string&) {}).value(),
             theirs = latest_usable(back, [](const std::string&) {}).value();
  const auto& optimiser = theirs.checkpoint.meta.at("config").at("task").at("optimiser");
  EXPECT_EQ(optimiser.at("kind"), "lion");
  EXPECT_EQ(optimiser.at("learning_rate"), 1e-4);
  int moments = 0;
  for (const auto& [name, tensor] : ours.checkpoint.tensors) {
    if (!name.starts_with("optimiser.") || !name.ends_with(".first")) continue;
    ++moments;
    ASSERT_TRUE(theirs.checkpoint.tensors.count(name)) << name;
    EXPECT_TRUE(at::equal(tensor, theirs.checkpoint.tensors.at(name))) << name;
    EXPECT_FALSE(theirs.checkpoint.tensors.count(name.substr(0, name.size() - 5) + "second"));
  }
  EXPECT_GT(moments, 20);
  // The tokenizer came along: both read alike, and training goes on.
  const Words texts = {"a slow organ", "an organ"};
  EXPECT_TRUE(at::allclose(musiclm::load_mulan(run_of).embedding->embed_text(texts),
                           musiclm::load_mulan(back).embedding->embed_text(texts), 0, 1e-6));
  run({"train", "mulan", "--out", back, "--resume", "--steps", "4", "--data", music(), "--batch_size", "4",
       "--data.segment_seconds", "0.5", "--threads", "1"});
  EXPECT_EQ(last_of(back).step, 4);
}

TEST(MulanProgram, TextsWithoutWordsAreLeftOutByName) {
  TemporaryFolder folder;
  fs::copy(music(), folder / "music", fs::copy_options::recursive);
  std::vector<std::string> texts;
  for (const auto& entry : fs::directory_iterator(folder / "music"))
    if (entry.path().extension() == ".txt") texts.push_back(entry.path().string());
  std::sort(texts.begin(), texts.end());
  ASSERT_EQ(texts.size(), 12u);
  std::ofstream(texts[4]) << "...!";
  const std::string name = fs::path(texts[4]).stem().string(), out = folder / "run";
  EXPECT_THAT(run(mulan(out, {"--data", folder / "music", "--text.tokenizer", "words"})),
              AllOf(HasSubstr(name), HasSubstr("`...!` has no words"),
                    HasSubstr("1 of 12 items in " + (folder / "music") + " have a text without words")));
  EXPECT_THAT(run({"eval", "mulan", "--from", out, "--data", folder / "music"}),
              AllOf(HasSubstr("0 have no text and 1 one without words"), HasSubstr("on 11 recordings")));
  EXPECT_THAT(run({"embed", out, "--data", folder / "music", "--side", "text", "-o", folder / "texts"}),
              AllOf(HasSubstr(name), HasSubstr("1 of 12 texts have no words"), HasSubstr("11 embedded")));
  const Said none =
      say({"classify", out, texts[0].substr(0, texts[0].size() - 3) + "wav", "--labels", "organ,!!"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.text, HasSubstr("the label `!!` has no words"));
}

TEST(MulanProgram, TextsThatAreCutAreCounted) {
  TemporaryFolder folder;
  const std::string out = folder / "run", sound = music() + "/music_000001.wav";
  ASSERT_TRUE(fs::exists(sound));
  run(mulan(out,
            {"--data", music(), "--steps", "1", "--text.tokenizer", "words", "--model.text.window", "3"}));
  std::ofstream(folder / "texts.txt") << "one two three\none two three four\n";
  EXPECT_THAT(run({"embed", out, "--data", folder / "texts.txt", "--side", "text", "-o", folder / "texts"}),
              HasSubstr("1 of 2 texts are longer"));
  EXPECT_THAT(run({"search", out, "a b c d", "--in", folder / "texts"}),
              HasSubstr("1 of 1 texts are longer"));
  EXPECT_THAT(run({"search", out, "a b c", "--in", folder / "texts"}), Not(HasSubstr("longer")));
  EXPECT_THAT(run({"classify", out, sound, "--labels", "a,b c d e"}), HasSubstr("1 of 2 texts are longer"));
  EXPECT_THAT(run({"eval", "mulan", "--from", out, "--data", music()}),
              HasSubstr("12 of 12 texts are longer"));
}

TEST(MulanProgram, HeldOutIsWhatTheRunDidNotTrainOn) {
  TemporaryFolder folder;
  const std::string split = folder / "split", apart = folder / "apart";
  run(mulan(split, {"--data", music(), "--steps", "1"}));
  EXPECT_THAT(run({"eval", "mulan", "--from", split, "--held-out"}), HasSubstr("on 3 recordings"));
  EXPECT_THAT(run({"eval", "mulan", "--from", split, "--data", music(), "--held-out"}),
              HasSubstr("on 3 recordings"));
  // Validated on data of its own, this one has held out nothing of its training data.
  SynthOptions options;
  options.folder = folder / "other";
  options.count = 5;
  options.seed = 9;
  options.rate_hz = 8000;
  options.seconds = 1;
  synth_music(options);
  run(mulan(apart, {"--data", music(), "--valid-data", options.folder, "--steps", "1"}));
  EXPECT_THAT(run({"eval", "mulan", "--from", apart, "--held-out"}), HasSubstr("on 5 recordings"));
  const Said wrong = say({"eval", "mulan", "--from", apart, "--data", music(), "--held-out"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.text, AllOf(HasSubstr("held nothing out"), HasSubstr(options.folder)));
}

TEST(MulanProgram, ABatchThatHoldsAPieceTwiceIsSaid) {
  TemporaryFolder folder;
  EXPECT_THAT(run(mulan(folder / "small", {"--data", music(), "--steps", "1"})),
              Not(HasSubstr("several times")));
  EXPECT_THAT(run(mulan(folder / "large", {"--data", music(), "--steps", "1", "--batch_size", "16"})),
              AllOf(HasSubstr("a batch of 16 has the same of 9 recordings several times"),
                    HasSubstr("try --batch_size 9")));
}

TEST(MulanProgram, NamesOfFoldersAreTags) {
  TemporaryFolder folder;
  int number = 0;
  for (const char* name : {"a_bell", "an_organ"})
    for (int i = 0; i < 4; ++i) {
      fs::create_directories(folder / name);
      fs::copy_file(fmt::format("{}/music_{:06}.wav", music(), number++),
                    fmt::format("{}/{}/{}.wav", folder.path(), name, i));
    }
  const std::string list = folder / "list.jsonl", out = folder / "run";
  run({"data", "index", folder.path(), "--tags", "folder", "-o", list});
  EXPECT_EQ(read_manifest(list).front().tags, Words{"a bell"});
  run(mulan(out, {"--data", list, "--steps", "1", "--text.tokenizer", "words", "--task.tag_templates",
                  "the sound of {}", "--train.validate_every", "1"}));
  EXPECT_THAT(run({"eval", "mulan", "--from", out, "--data", list, "--labels", "bell,organ"}),
              AllOf(HasSubstr("on 8 recordings"), HasSubstr("; 0 left out")));
  EXPECT_EQ(musiclm::load_mulan(out).templates.for_names(), Words{"the sound of {}"});
  const Said one = say({"eval", "mulan", "--from", out, "--data", list, "--labels", "bell"});
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.text, HasSubstr("--labels with at least two"));
}

TEST(MulanProgram, AStageThatHearsNoEmbeddingNamesThoseThatDo) {
  const Said said = say({"train", "semantic", "--data", music(), "--condition_from", "runs/mulan"});
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.text,
              AllOf(HasSubstr("unknown option '--condition_from'"), HasSubstr("musiclm-semantic")));
}

// A MusicLM in files, of which no part has learned anything.
class MusicProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    const std::string runs = *folder_ / "runs";
    torch::manual_seed(2);
    MfccConfig mfcc;
    const KmeansTokenizer tokenizer(std::make_unique<MfccFeatures>(mfcc),
                                    Centroids{at::randn({16, Mfcc(mfcc).dim()}) * 5, {}, {}});
    fs::create_directories(runs);
    save_frozen(runs + "/tokenizer.safetensors", frozen(tokenizer));
    nlohmann::ordered_json settings = testing::small_codec_settings();
    settings["model"]["codec"]["strides"] = {4, 5, 8};  // 50 frames a second
    settings["model"]["codec"]["channel_multiples"] = {1, 1, 2};
    save_checkpoint(runs + "/codec.safetensors", testing::small_codec_checkpoint(4, settings));
    run(mulan(runs + "/mulan", {"--data", music(), "--steps", "1", "--text.tokenizer", "words"}));
    for (const std::string stage : {"semantic", "coarse", "fine"}) {
      Words words = {"train",
                     "musiclm-" + stage,
                     "--out",
                     runs + "/" + stage,
                     "--data",
                     music(),
                     "--steps",
                     "1",
                     "--threads",
                     "1",
                     "--condition_from",
                     runs + "/mulan",
                     "--model.dim",
                     "32",
                     "--model.depth",
                     "1",
                     "--model.heads",
                     "1",
                     "--model.head_dim",
                     "32",
                     "--model.text_dim",
                     "24",
                     "--condition.quantizers",
                     "2",
                     "--condition.codebook_size",
                     "4",
                     "--data.segment_seconds",
                     "0.5",
                     "--data.workers",
                     "1",
                     "--batch_size",
                     "4"};
      if (stage != "fine") words.insert(words.end(), {"--semantic_from", runs + "/tokenizer.safetensors"});
      if (stage != "semantic") words.insert(words.end(), {"--codec_from", runs + "/codec.safetensors"});
      if (stage == "coarse") words.insert(words.end(), {"--model.quantizers", "2"});
      if (stage == "fine") words.insert(words.end(), {"--model.coarse_quantizers", "2"});
      run(words);
    }
  }
  static void TearDownTestSuite() { folder_.reset(); }

  std::string generate(const std::string& out, const Words& more) {
    Words words = {"generate", "musiclm", "--from", *folder_ / "runs", "--threads", "1",
                   "--seed",   "3",       "-o",     *folder_ / out};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  int64_t samples(const std::string& out) { return probe_audio(*folder_ / out).frames; }

  static std::unique_ptr<TemporaryFolder> folder_;
};
std::unique_ptr<TemporaryFolder> MusicProgram::folder_;

TEST_F(MusicProgram, TheBestOfThePiecesIsWritten) {
  const Words asked = {"--text", "a slow organ", "--samples", "3", "--seconds", "0.4"};
  Words all = asked;
  all.push_back("--keep_all");
  const std::string table = generate("all.wav", all);
  generate("best.wav", asked);
  int64_t best = -1;
  double best_score = -2, highest = -2;
  const std::regex row(" +(\\d) +([+-][0-9.]+) +0\\.40  (the best, )?");
  for (std::sregex_iterator at(table.begin(), table.end(), row), end; at != end; ++at) {
    highest = std::max(highest, std::stod((*at)[2]));
    if (!(*at)[3].matched) continue;
    best = std::stoll((*at)[1]);
    best_score = std::stod((*at)[2]);
  }
  ASSERT_GE(best, 0) << table;
  EXPECT_EQ(best_score, highest) << table;
  for (int64_t piece = 0; piece < 3; ++piece) {
    const std::string kept = *folder_ / fmt::format("all_{}.wav", piece);
    ASSERT_TRUE(fs::exists(kept)) << table;
    EXPECT_EQ(read_bytes(kept) == read_bytes(*folder_ / "best.wav"), piece == best) << piece;
  }
}

// Each as it is by itself, in a folder that the tools of MuLaN read.
TEST_F(MusicProgram, ATextALineAPieceEach) {
  std::ofstream(*folder_ / "texts.txt") << "a slow organ\n\nfast bells\n";
  const Words asked = {"--texts", *folder_ / "texts.txt", "--samples", "2", "--seconds", "0.3"};
  EXPECT_THAT(generate("made/piece.wav", asked),
              AllOf(HasSubstr("a slow organ\npiece"), HasSubstr("fast bells\npiece")));
  generate("alone.wav", {"--text", "a slow organ", "--samples", "2", "--seconds", "0.3"});
  EXPECT_EQ(read_bytes(*folder_ / "made/piece_0.wav"), read_bytes(*folder_ / "alone.wav"));
  EXPECT_NE(read_bytes(*folder_ / "made/piece_1.wav"), read_bytes(*folder_ / "alone.wav"));
  EXPECT_EQ(read_bytes(*folder_ / "made/piece_1.txt"), "fast bells\n");
  EXPECT_FALSE(fs::exists(*folder_ / "alone.txt"));
  EXPECT_THAT(run({"eval", "mulan", "--from", *folder_ / "runs/mulan", "--data", *folder_ / "made"}),
              HasSubstr("on 2 recordings"));
  Words all = asked;
  all.push_back("--keep_all");
  generate("all/piece.wav", all);
  EXPECT_EQ(read_bytes(*folder_ / "all/piece_1.txt"), "a slow organ\n");
  EXPECT_EQ(read_bytes(*folder_ / "all/piece_2.txt"), "fast bells\n");
  for (const auto& [more, complaint] :
       {std::pair{"--text", "leave --text out"}, {"--story", "leave --texts out"}}) {
    const Said said = say({"generate", "musiclm", "--from", *folder_ / "runs", "--texts",
                           *folder_ / "texts.txt", more, "0 an organ", "-o", *folder_ / "no.wav"});
    EXPECT_EQ(said.code, 2);
    EXPECT_THAT(said.text, HasSubstr(complaint));
  }
  std::ofstream(*folder_ / "texts.txt") << "a slow organ\n...\n";
  const Said wordless = say({"generate", "musiclm", "--from", *folder_ / "runs", "--texts",
                             *folder_ / "texts.txt", "-o", *folder_ / "none/piece.wav"});
  EXPECT_EQ(wordless.code, 1);
  EXPECT_THAT(wordless.text, HasSubstr("`...` has no words"));
  EXPECT_FALSE(fs::exists(*folder_ / "none/piece_0.wav")) << "it is said before the work";
}

TEST_F(MusicProgram, LongPiecesStoriesAndPromptsAreAsLongAsTheyShould) {
  EXPECT_THAT(generate("long.wav", {"--text", "bells", "--seconds", "0.9", "--window_seconds", "0.4",
                                    "--overlap_seconds", "0.2"}),
              HasSubstr("4 windows that overlap by 0.2 s"));
  EXPECT_EQ(samples("long.wav"), 7200);
  const std::string told = generate("story.wav", {"--story", "0 a slow organ; 0.3 a fast drum", "--seconds",
                                                  "0.5", "--overlap_seconds", "0.2"});
  EXPECT_THAT(told,
              AllOf(HasSubstr("0.00 to 0.30 s  a slow organ"), HasSubstr("0.30 to 0.50 s  a fast drum")));
  EXPECT_EQ(samples("story.wav"), 4000);
  generate("prompt.wav", {"--text", "bells", "--prompt", music() + "/music_000002.wav", "--prompt_seconds",
                          "0.5", "--seconds", "0.3"});
  EXPECT_EQ(samples("prompt.wav"), 6400);
}

// Opening a folder of a hundred thousand must not cost more than searching it.
TEST(MulanProgram, AFolderOfAHundredThousandIsSearchedInMilliseconds) {
  TemporaryFolder folder;
  const std::string out = folder / "run", in = folder / "embeddings";
  run(mulan(out, {"--data", music(), "--steps", "1"}));
  musiclm::Embeddings all{musiclm::load_mulan(out).embedding->identity(), "audio", {}, {}};
  all.vectors = at::randn({100000, 16});
  all.vectors = all.vectors / all.vectors.norm(2, {1}, true);
  for (int i = 0; i < 100000; ++i)
    all.items.push_back({fmt::format("music/of/many/folders/music_{:06}.flac", i),
                         "Open, slow music in a concert hall: a mellow organ melody, in G major", 64000});
  musiclm::EmbeddingFolder(in, all.identity, "audio").finish(all);
  const std::string found = run({"search", out, "a slow organ", "--in", in, "--top", "3", "--threads", "1"});
  EXPECT_THAT(found, AllOf(HasSubstr("music/of/many/folders/music_"), HasSubstr("100000 rows in ")));
  std::printf("  %s", found.substr(found.rfind("100000 rows")).c_str());
  const std::clock_t begin = std::clock();
  const musiclm::OpenedEmbeddings opened(in);
  EXPECT_EQ(opened.item(99999).path, all.items.back().path);
  const double milliseconds = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("  opened in %.1f ms of CPU time\n", milliseconds);
  EXPECT_LT(milliseconds, 100);
}

}  // namespace musiclm_program_test
}  // namespace melete
