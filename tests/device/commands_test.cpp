// Every generator in the systems' list, and every command that runs a model, on the pretend GPU: what comes
// out is what comes out on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "cli/app.h"
#include "core/device.h"
#include "data/token_folder.h"
#include "device/pretend_gpu.h"
#include "device/untrained_runs.h"
#include "io/base/audio_file.h"
#include "io/base/picture_file.h"
#include "io/tensors.h"
#include "roles/open.h"
#include "systems/spear_tts/load.h"
#include "systems/spear_tts/pairs.h"
#include "systems/system.h"

namespace melete::device_commands_test {

namespace fs = std::filesystem;
using melete::testing::gpu_traffic;
using melete::testing::TemporaryFolder;
using melete::testing::UntrainedRuns;

const UntrainedRuns& runs() {
  return UntrainedRuns::shared();
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The same words, and numbers that are the same to rounding.
void expect_same_words(const std::string& cpu, const std::string& gpu, double tolerance) {
  std::istringstream here(cpu), there(gpu);
  for (std::string a, b; here >> a;) {
    ASSERT_TRUE(there >> b) << "the GPU said less: " << gpu;
    if (a == b) continue;  // "nan" is a figure that cannot be had
    char *end_a = nullptr, *end_b = nullptr;
    const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
    if (end_a == a.c_str() || end_b == b.c_str()) {
      EXPECT_EQ(a, b);
    } else {
      EXPECT_NEAR(x, y, tolerance * std::max(1.0, std::abs(x)));
    }
  }
}

void expect_same_sound(const std::string& cpu, const std::string& gpu) {
  const Audio a = read_audio(cpu), b = read_audio(gpu);
  ASSERT_EQ(a.samples.size(), b.samples.size());
  ASSERT_GT(a.samples.size(), 0u);
  double signal = 0, error = 0;
  for (size_t i = 0; i < a.samples.size(); ++i) {
    const double here = a.samples[i], difference = here - b.samples[i];
    signal += here * here;
    error += difference * difference;
  }
  EXPECT_GT(10 * std::log10(signal / error), 40) << cpu;
}

void expect_same_picture(const std::string& cpu, const std::string& gpu) {
  const Image a = read_picture(cpu).image, b = read_picture(gpu).image;
  ASSERT_EQ(a.rgb.size(), b.rgb.size());
  int largest = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) largest = std::max(largest, std::abs(int{a.rgb[i]} - b.rgb[i]));
  EXPECT_LE(largest, 2) << cpu;
}

void expect_same_file(const std::string& cpu, const std::string& gpu) {
  SCOPED_TRACE(cpu);
  const std::string kind = fs::path(cpu).extension().string();
  if (kind == ".wav" || kind == ".flac")
    expect_same_sound(cpu, gpu);
  else if (kind == ".png")
    expect_same_picture(cpu, gpu);
  else
    expect_same_words(text_of(cpu), text_of(gpu), 1e-3);
}

// Runs `melete WORDS --device D` on both; "OUT" among the words is a path of each device's own. -> what was
// printed, and where it wrote
struct Done {
  std::string said, out;
};
Done run_on(const std::string& device, std::vector<std::string> words, const std::string& out) {
  for (std::string& word : words)
    if (word.starts_with("OUT")) word = out + word.substr(3);
  words.insert(words.end(), {"--device", device, "--threads", "1"});
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_program(words);
  Done done{::testing::internal::GetCapturedStdout(), out};
  const std::string errors = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 0) << errors;
  EXPECT_THAT(errors, ::testing::HasSubstr("computing on " + device));
  return done;
}

struct Both {
  TemporaryFolder folder;
  Done cpu, gpu;
};
std::unique_ptr<Both> run_on_both(const std::vector<std::string>& words, const std::string& ending = "") {
  auto both = std::make_unique<Both>();
  both->cpu = run_on("cpu", words, both->folder / ("cpu" + ending));
  const int64_t before = gpu_traffic().copies_out;
  both->gpu = run_on("cuda:0", words, both->folder / ("gpu" + ending));
  EXPECT_GT(gpu_traffic().copies_out, before) << "nothing was computed on the GPU";
  return both;
}

struct Words {
  std::vector<std::string> words;
  std::string ending;
  bool phonemes = false;  // needs espeak-ng
  bool exact = true;      // false: computes otherwise on a CPU, by design
};

// One of the sentences that the phonemes are known of.
std::string spoken_text() {
  if (runs().speaks())
    for (const auto& entry : fs::recursive_directory_iterator(runs() / "speech"))
      if (entry.path().extension() == ".txt") return text_of(entry.path().string());
  return "";
}

// What each generator is asked for. One that is not here makes the test below fail.
std::map<std::string, std::vector<Words>> generator_words() {
  const auto& at = runs();
  const std::string low = at / "sound/low.wav", high = at / "sound/high.wav";
  const auto file = [&](const char* name) { return at / (name + std::string(".safetensors")); };
  return {
      {"audiolm",
       {{{"--semantic", file("semantic"), "--coarse", file("coarse"), "--fine", file("fine"), "--prompt", low,
          "--prompt_seconds", "0.2", "--seconds", "0.1"},
         ".wav"},
        {{"--semantic", file("semantic"), "--coarse", file("coarse"), "--seconds", "0.1", "--precision",
          "int8"},
         ".wav",
         false,
         false}}},
      {"semantic",
       {{{"--from", file("semantic"), "--prompt", low, "--prompt_seconds", "0.3", "--seconds", "0.3"},
         ".txt"}}},
      {"coarse",
       {{{"--from", file("coarse"), "--prompt", low, "--prompt_seconds", "0.2", "--seconds", "0.1"},
         ".wav"}}},
      {"fine", {{{"--from", file("fine"), "--prompt", low, "--prompt_seconds", "0.1"}, ".wav"}}},
      {"spear-tts",
       {{{"--from", file("spear-text-to-semantic"), "--text", "Hello there.", "--longest", "12"}, ".txt"},
        {{"--from", file("spear-text-to-semantic"), "--text", "Hello there.", "--longest", "12", "--beam",
          "3"},
         ".txt"},
        {{"--from", file("spear-text-to-semantic"), "--text", "Hello.", "--longest", "8", "--coarse",
          file("coarse"), "--fine", file("fine"), "--voice", low, "--voice_seconds", "0.2"},
         ".wav"}}},
      {"musiclm",
       {{{"--semantic", file("musiclm-semantic"), "--coarse", file("musiclm-coarse"), "--fine",
          file("musiclm-fine"), "--text", "a slow organ", "--samples", "2", "--seconds", "0.2"},
         ".wav"},
        {{"--semantic", file("musiclm-semantic"), "--coarse", file("musiclm-coarse"), "--text", "bells",
          "--like", high, "--samples", "1", "--seconds", "0.4", "--window_seconds", "0.3",
          "--overlap_seconds", "0.1"},
         ".wav"}}},
      {"muse",
       {{{"--from", file("maskgit"), "--text", "a red circle", "--negative", "blue", "--count", "2",
          "--steps", "3"},
         ".png"},
        {{"--from", file("maskgit"), "--text", "a red circle", "--image", at / "picture.png", "--strength",
          "0.5", "--steps", "3"},
         ".png"}}},
      {"voicebox",
       {{{"--from", file("voicebox"), "--vocoder", file("vocos"), "--speech", low, "--voice", high, "--steps",
          "2"},
         ".wav"},
        {{"--from", file("reading"), "--vocoder", file("vocos"), "--durations", file("duration"), "--text",
          spoken_text(), "--steps", "2"},
         ".wav",
         true}}},
  };
}

std::vector<std::string> generator_names() {
  std::vector<std::string> names;
  for (const System& system : systems())
    for (const Generator& generator : system.generates) names.push_back(generator.name);
  return names;
}

class EveryGeneratorOnAGpu : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryGeneratorOnAGpu, MakesWhatItMakesOnTheCpu) {
  const auto all = generator_words();
  const auto known = all.find(GetParam());
  ASSERT_NE(known, all.end()) << "say what to ask of it in generator_words()";
  if (!fs::exists(runs() / "picture.png"))
    for (const auto& entry : fs::recursive_directory_iterator(runs() / "shapes"))
      if (entry.path().extension() == ".png")
        fs::copy_file(entry.path(), runs() / "picture.png", fs::copy_options::overwrite_existing);
  for (const Words& asked : known->second) {
    if (asked.phonemes && !runs().speaks()) continue;
    std::vector<std::string> words = {"generate", GetParam(), "-o", "OUT"};
    words.insert(words.end(), asked.words.begin(), asked.words.end());
    SCOPED_TRACE(::testing::PrintToString(words));
    const auto both = run_on_both(words, asked.ending);
    if (asked.exact) {
      expect_same_file(both->cpu.out, both->gpu.out);
    } else {
      EXPECT_TRUE(fs::exists(both->gpu.out));
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Generators, EveryGeneratorOnAGpu, ::testing::ValuesIn(generator_names()), test_name);

TEST(CommandsOnAGpu, CodecsEncodeDecodeAndAreMeasured) {
  const std::string from = runs() / "codec.safetensors", sound = runs() / "sound/low.wav";
  const auto tokens = run_on_both({"codec", "encode", sound, "--from", from, "-o", "OUT"}, ".tokens");
  EXPECT_EQ(text_of(tokens->cpu.out), text_of(tokens->gpu.out));
  const auto decoded = run_on_both({"codec", "decode", tokens->cpu.out, "--from", from, "-o", "OUT"}, ".wav");
  expect_same_sound(decoded->cpu.out, decoded->gpu.out);

  const auto measured =
      run_on_both({"codec", "eval", "--from", from, "--data", runs() / "music", "-o", "OUT", "--shown", "0"});
  std::istringstream here(text_of(measured->cpu.out + "/figures.tsv")),
      there(text_of(measured->gpu.out + "/figures.tsv"));
  const auto without_speeds = [](std::string line) {
    for (int column = 0; column < 2; ++column) line.resize(std::min(line.size(), line.rfind('\t')));
    return line;
  };
  int lines = 0;
  for (std::string a, b; std::getline(here, a) && std::getline(there, b); ++lines)
    expect_same_words(without_speeds(a), without_speeds(b), 5e-3);
  EXPECT_GT(lines, 3);
}

TEST(CommandsOnAGpu, PicturesAreEncodedDecodedAndMeasured) {
  const std::string from = runs() / "vqgan.safetensors";
  const auto tokens = run_on_both({"images", "encode", runs() / "shapes", "--from", from, "-o", "OUT"});
  const auto here = read_token_items(tokens->cpu.out), there = read_token_items(tokens->gpu.out);
  ASSERT_EQ(here.size(), there.size());
  for (size_t i = 0; i < here.size(); ++i)
    EXPECT_GT(here[i]
                  .find("tokens")
                  ->values.eq(there[i].find("tokens")->values)
                  .to(at::kFloat)
                  .mean()
                  .item<double>(),
              0.99);
  const auto decoded = run_on_both({"images", "decode", tokens->cpu.out, "--from", from, "-o", "OUT"});
  int pictures = 0;
  for (const auto& entry : fs::recursive_directory_iterator(decoded->cpu.out))
    if (entry.path().extension() == ".png") {
      ++pictures;
      expect_same_picture(
          entry.path().string(),
          (fs::path(decoded->gpu.out) / fs::relative(entry.path(), decoded->cpu.out)).string());
    }
  EXPECT_EQ(pictures, 4);
  const auto measured = run_on_both({"images", "eval", runs() / "shapes", "--from", from});
  expect_same_words(measured->cpu.said, measured->gpu.said, 2e-2);
}

TEST(CommandsOnAGpu, AJointEmbeddingIsATool) {
  const std::string run = runs() / "mulan.safetensors", music = runs() / "music";
  const auto made = run_on_both({"embed", run, "--data", music, "-o", "OUT"});
  const at::Tensor here = read_tensors(made->cpu.out + "/embeddings.safetensors").begin()->second,
                   there = read_tensors(made->gpu.out + "/embeddings.safetensors").begin()->second;
  EXPECT_TRUE(at::allclose(here, there, 1e-3, 1e-4));
  const auto lines = [](const std::string& said) { return said.substr(0, said.rfind(" rows in ")); };
  const auto found = run_on_both({"search", run, "a slow organ", "--in", made->cpu.out});
  expect_same_words(lines(found->cpu.said), lines(found->gpu.said), 5e-3);
  const auto like = run_on_both({"search", run, "--like", runs() / "sound/low.wav", "--in", made->cpu.out});
  expect_same_words(lines(like->cpu.said), lines(like->gpu.said), 5e-3);
  const auto named =
      run_on_both({"classify", run, runs() / "sound/low.wav", "--labels", "organ,bell,plucked string"});
  expect_same_words(named->cpu.said, named->gpu.said, 5e-3);
  const auto judged =
      run_on_both({"eval", "mulan", "--from", run, "--data", music, "--labels", "organ,bell"});
  expect_same_words(judged->cpu.said, judged->gpu.said, 2e-2);
}

TEST(CommandsOnAGpu, TokensAreMadeReadAndAligned) {
  const auto made = run_on_both({"data", "tokenize", runs() / "music", "--semantic",
                                 runs() / "tokenizer.safetensors", "--codec", runs() / "codec.safetensors",
                                 "--joint", runs() / "mulan.safetensors", "-o", "OUT"});
  const auto here = read_token_items(made->cpu.out), there = read_token_items(made->gpu.out);
  ASSERT_EQ(here.size(), 4u);
  ASSERT_EQ(there.size(), 4u);
  for (size_t i = 0; i < here.size(); ++i) {
    for (const char* column : {"semantic", "acoustic"})
      EXPECT_GT(
          here[i].find(column)->values.eq(there[i].find(column)->values).to(at::kFloat).mean().item<double>(),
          0.99)
          << column;
    EXPECT_TRUE(at::allclose(here[i].find("joint")->values, there[i].find("joint")->values, 1e-3, 1e-4));
  }
  // Read by a model that knows nothing yet: all that it wrote, before the filter that keeps what is likely.
  std::vector<std::vector<Item>> readings;
  const TemporaryFolder pairs;
  for (const char* device : {"cpu", "cuda:0"}) {
    spear_tts::Reader reader =
        spear_tts::open_reader(runs() / "spear-back-translate.safetensors", Weights::best,
                               "spear-back-translate", device_named(device));
    spear_tts::ReadingOptions how;
    how.beams = 2;
    how.labelled = true;
    how.longest_ratio = 0.1;
    spear_tts::read_speech(reader, made->cpu.out, pairs / device, how);
    readings.push_back(read_token_items((pairs / device) + "/readings"));
  }
  ASSERT_EQ(readings[0].size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(readings[0][i].words.at("text"), readings[1][i].words.at("text"));
  if (!runs().speaks()) return;
  const auto aligned = run_on_both(
      {"data", "align", runs() / "speech", "--from", runs() / "aligner.safetensors", "-o", "OUT"}, ".jsonl");
  EXPECT_EQ(text_of(aligned->cpu.out), text_of(aligned->gpu.out));
}

TEST(CommandsOnAGpu, KmeansIsFitted) {
  const auto fitted =
      run_on_both({"train", "kmeans", "--data", runs() / "music", "--clusters", "8", "--batch_frames", "60",
                   "--start_frames", "100", "--max_batches", "6", "-o", "OUT"},
                  ".safetensors");
  const auto here = open_semantic_tokenizer(fitted->cpu.out),
             there = open_semantic_tokenizer(fitted->gpu.out);
  at::Tensor wave = at::sin(at::arange(16000, at::kFloat) * 0.05).unsqueeze(0);
  EXPECT_TRUE(here->tokenize(wave).equal(there->tokenize(wave)));
}

}  // namespace melete::device_commands_test
