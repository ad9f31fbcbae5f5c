// Recordings to tokens and back: in pieces as in one, with the model that made them, and never half a file.
#include "roles/codec_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/audio_file.h"
#include "io/base/resample.h"
#include "measure/codec_eval.h"
#include "roles/open.h"
#include "small_codec.h"
#include "systems/soundstream/codec.h"
#include "systems/soundstream/identity.h"
#include "systems/soundstream/load.h"
#include "systems/soundstream/pieces.h"

namespace melete {
namespace codec_files_test {

namespace fs = std::filesystem;
using namespace testing;
using ::testing::HasSubstr;

std::vector<float> noise(int64_t samples, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> wave(static_cast<size_t>(samples));
  float held = 0;
  for (float& sample : wave) sample = held = 0.9f * held + 0.1f * static_cast<float>(rng.uniform(-3, 3));
  return wave;
}

SoundStream small_codec(nlohmann::ordered_json settings = small_codec_settings()) {
  TemporaryFolder folder;
  save_checkpoint(folder / "c.safetensors", small_codec_checkpoint(3, settings));
  return load_codec(folder / "c.safetensors").model;
}

CodecFiles files_of(const std::string& path, double piece_seconds = 20) {
  OpenedCodec opened = open_codec_with_its_name(path);
  return {std::move(opened.codec), opened.name, piece_seconds};
}

at::Tensor in_pieces(SoundStream codec, const std::vector<float>& wave, const PieceLayout& layout,
                     uint64_t seed) {
  Rng rng(seed);
  PieceEncoder encoder(codec, layout);
  std::vector<at::Tensor> parts;
  for (size_t at = 0; at < wave.size();) {
    const size_t size = std::min<size_t>(static_cast<size_t>(rng.integer(1, 5000)), wave.size() - at);
    parts.push_back(encoder.push(std::span(wave).subspan(at, size)));
    at += size;
  }
  parts.push_back(encoder.finish());
  return at::cat(parts);
}

TEST(CodecPieces, SameTokensAndSoundAsInOnePiece) {
  const std::vector<nlohmann::ordered_json> kinds = {{{"attention", true}},
                                                     {{"attention", false}},
                                                     {{"attention", false},
                                                      {"front", "lapped"},
                                                      {"front_hop", 8},
                                                      {"strides", {1, 1}},
                                                      {"noise_from_hz", 2000}}};
  for (const auto& kind : kinds) {
    auto settings = small_codec_settings();
    settings["model"]["codec"].merge_patch(kind);
    SoundStream codec = small_codec(settings);
    const int64_t frame = codec->samples_per_frame();
    const PieceLayout layout = piece_layout(codec->config(), 0.05);
    ASSERT_GT(layout.piece_frames, 0);
    ASSERT_LT(layout.piece_frames + layout.encode_context, 600);
    for (const int64_t samples : {40000, 40001, 7, 3000}) {
      std::vector<float> wave = noise(samples, static_cast<uint64_t>(samples));
      const at::Tensor pieces = in_pieces(codec, wave, layout, 1);
      EXPECT_TRUE(at::equal(pieces, in_pieces(codec, wave, layout, 2)));  // however it arrives
      const int64_t frames = std::max((samples + frame - 1) / frame, layout.least_frames);
      wave.resize(static_cast<size_t>(frames * frame));
      const at::Tensor whole =
          codec->tokenize(at::tensor(wave).unsqueeze(0)).squeeze(1).transpose(0, 1).contiguous();
      ASSERT_EQ(pieces.sizes(), whole.sizes());
      EXPECT_TRUE(at::equal(pieces, whole)) << kind.dump() << ", " << samples << " samples";

      PieceDecoder decoder(codec, layout);
      std::vector<float> sound;
      for (int64_t begin = 0; begin < whole.size(0); begin += 100) {
        const auto some = decoder.push(whole.narrow(0, begin, std::min<int64_t>(100, whole.size(0) - begin)));
        sound.insert(sound.end(), some.begin(), some.end());
      }
      const auto rest = decoder.finish();
      sound.insert(sound.end(), rest.begin(), rest.end());
      const at::Tensor expected = codec->decode_codes(whole.transpose(0, 1).unsqueeze(1)).flatten();
      ASSERT_EQ(static_cast<int64_t>(sound.size()), expected.numel());
      EXPECT_LT((at::tensor(sound) - expected).abs().max().item<double>(), 1e-5);
    }
  }
}

// A context that is one window short must be noticed by the test above: tokens do depend on it.
TEST(CodecPieces, ContextIsNeeded) {
  SoundStream codec = small_codec();
  PieceLayout layout = piece_layout(codec->config(), 0.05);
  const std::vector<float> wave = noise(40000, 5);
  const at::Tensor right = in_pieces(codec, wave, layout, 1);
  layout.encode_context = 0;
  EXPECT_FALSE(at::equal(right, in_pieces(codec, wave, layout, 1)));
}

TEST(CodecPieces, UnboundedMemoryOfTheModelMeansOnePiece) {
  auto settings = small_codec_settings();
  settings["model"]["codec"]["gate_loop"] = true;
  SoundStream codec = small_codec(settings);
  const PieceLayout layout = piece_layout(codec->config(), 0.05);
  EXPECT_EQ(layout.piece_frames, 0);
  const std::vector<float> wave = noise(8000, 6);
  EXPECT_TRUE(at::equal(in_pieces(codec, wave, layout, 1),
                        codec->tokenize(at::tensor(wave).unsqueeze(0)).squeeze(1).transpose(0, 1)));
}

TEST(CodecFiles, FromAFileToTokensAndBack) {
  TemporaryFolder folder;
  CodecFiles codec = files_of(write_small_codec(folder / "codec.safetensors", 1), 0.1);
  SoundStream model = load_codec(folder / "codec.safetensors").model;
  const std::vector<float> wave = noise(22050, 9);
  write_audio(folder / "in.wav", wave, 11025);
  const auto work = codec.encode(folder / "in.wav", folder / "in.tokens");
  EXPECT_NEAR(work.sound_seconds, 2.0, 0.001);
  const TokenFile tokens(folder / "in.tokens");
  EXPECT_EQ(tokens.samples(), 16000);
  EXPECT_EQ(tokens.header().model, codec.codec().identity());
  EXPECT_EQ(tokens.header().model_name, "codec step 7");
  EXPECT_EQ(tokens.header().quantizers, 4);
  EXPECT_EQ(tokens.header().source_rate_hz, 11025);
  const std::vector<float> resampled = Resampler(11025, 8000).run(read_audio(folder / "in.wav").samples);
  const at::Tensor whole = model->tokenize(at::tensor(resampled).unsqueeze(0));
  const at::Tensor expected = whole.squeeze(1).transpose(0, 1).flatten().contiguous();
  EXPECT_EQ(
      tokens.codes(0, tokens.frames()),
      std::vector<int64_t>(expected.data_ptr<int64_t>(), expected.data_ptr<int64_t>() + expected.numel()));

  codec.encode(folder / "in.wav", folder / "three.tokens", 3);
  EXPECT_EQ(TokenFile(folder / "three.tokens").header().quantizers, 3);
  EXPECT_THROW(codec.encode(folder / "in.wav", folder / "five.tokens", 5), Error);
  EXPECT_FALSE(fs::exists(folder / "five.tokens"));
  for (const char* name : {"in.tokens", "three.tokens"}) {
    codec.decode(folder / name, folder / "out.flac");
    const Audio out = read_audio(folder / "out.flac");
    EXPECT_EQ(out.frames(), 16000);
    EXPECT_EQ(out.rate_hz, 8000);
  }
}

TEST(CodecFiles, AnotherModelIsRefusedByName) {
  TemporaryFolder folder;
  CodecFiles first = files_of(write_small_codec(folder / "first.safetensors", 1));
  CodecFiles second = files_of(write_small_codec(folder / "second.safetensors", 2));
  CodecFiles again = files_of(write_small_codec(folder / "again.safetensors", 1));
  EXPECT_NE(first.codec().identity(), second.codec().identity());
  EXPECT_EQ(first.codec().identity(), again.codec().identity());
  write_audio(folder / "in.wav", noise(4000, 9), 8000);
  first.encode(folder / "in.wav", folder / "in.tokens");
  try {
    second.decode(folder / "in.tokens", folder / "out.wav");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("encoded with `first step 7`"));
    EXPECT_THAT(error.what(), HasSubstr("`second step 7`"));
  }
  EXPECT_FALSE(fs::exists(folder / "out.wav"));
  again.decode(folder / "in.tokens", folder / "out.wav");
}

// Files that an older program wrote: they name the codec otherwise, and decode as before.
TEST(CodecFiles, TokensOfOlderProgramsDecode) {
  TemporaryFolder folder;
  CodecFiles codec = files_of(write_small_codec(folder / "codec.safetensors", 1));
  const SoundStream model = load_codec(folder / "codec.safetensors").model;
  write_audio(folder / "in.wav", noise(4000, 9), 8000);
  codec.encode(folder / "in.wav", folder / "now.tokens");
  codec.decode(folder / "now.tokens", folder / "now.wav");
  const TokenFile now(folder / "now.tokens");
  for (const std::string& former : former_file_identities(*model)) {
    EXPECT_NE(former, codec.codec().identity());
    TokenHeader header = now.header();
    header.model = former;
    TokenWriter writer(folder / "then.tokens", header);
    writer.add(now.codes(0, now.frames()));
    writer.commit(now.samples());
    codec.decode(folder / "then.tokens", folder / "then.wav");
    EXPECT_EQ(read_audio(folder / "then.wav").samples, read_audio(folder / "now.wav").samples);
  }
}

// A codec of two groups: the first codes of a frame are coarse, and decode as the model does without the
// rest.
TEST(CodecFiles, GroupedCodecsGoTheSameWay) {
  TemporaryFolder folder;
  auto settings = small_codec_settings();
  settings["model"]["codec"]["quantizer"]["groups"] = 2;
  save_checkpoint(folder / "codec.safetensors", small_codec_checkpoint(3, settings));
  CodecFiles codec = files_of(folder / "codec.safetensors", 0.1);
  SoundStream model = load_codec(folder / "codec.safetensors").model;
  write_audio(folder / "in.wav", noise(9000, 4), 8000);
  codec.encode(folder / "in.wav", folder / "in.tokens", 3);
  const TokenFile tokens(folder / "in.tokens");
  EXPECT_EQ(tokens.header().groups, 2);
  EXPECT_EQ(tokens.header().quantizers, 6);
  codec.decode(folder / "in.tokens", folder / "out.wav");
  const at::Tensor wave = at::tensor(read_audio(folder / "in.wav").samples).unsqueeze(0);
  const at::Tensor expected =  // files are clamped
      model->decode_codes(model->tokenize(wave).narrow(3, 0, 3)).flatten().clamp(-1, 1);
  const std::vector<float> got = read_audio(folder / "out.wav").samples;
  ASSERT_EQ(static_cast<int64_t>(got.size()), 9000);
  EXPECT_LT((at::tensor(got) - expected).abs().max().item<double>(), 1e-5);
  const CodecEval eval = eval_codec_beside_opus(codec.codec(), {{"a", wave}});
  EXPECT_EQ(eval.stages.size(), 8u);
  EXPECT_NEAR(eval.points[3].bits_per_second, 4 * eval.points[0].bits_per_second, 1e-6);
}

TEST(CodecCommand, KeepsTheTreeAndNamesWhatItCannotRead) {
  TemporaryFolder folder;
  const std::string codec = write_small_codec(folder / "codec.safetensors", 1);
  write_audio(folder / "in/a.wav", noise(4000, 1), 8000);
  write_audio(folder / "in/deep/er/b.flac", noise(9000, 2), 16000);
  write_bytes(folder / "in/notes.txt", "not sound");
  const std::string in = folder.path() + "/in", out = folder.path() + "/out", back = folder.path() + "/back";
  EXPECT_EQ(run_program({"codec", "encode", in, "--from", codec, "-o", out, "--threads", "1"}), 0);
  EXPECT_TRUE(fs::exists(out + "/a.wav.tokens"));
  EXPECT_TRUE(fs::exists(out + "/deep/er/b.flac.tokens"));
  EXPECT_FALSE(fs::exists(out + "/notes.txt.tokens"));
  EXPECT_EQ(run_program({"codec", "decode", out, "--from", codec, "-o", back, "--threads", "1"}), 0);
  EXPECT_EQ(read_audio(back + "/a.wav").frames(), 4000);
  EXPECT_EQ(read_audio(back + "/deep/er/b.flac.wav").frames(), 4500);

  write_bytes(folder / "in/broken.wav", "RIFF no");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_program({"codec", "encode", in, "--from", codec, "-o", out, "--threads", "1"}), 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("broken.wav"));
  EXPECT_THAT(said, HasSubstr("1 of 3 files"));
  EXPECT_FALSE(fs::exists(out + "/broken.wav.tokens"));

  EXPECT_EQ(run_program({"codec", "encode", in, "--from", codec}), 2);
  EXPECT_EQ(run_program({"codec", "encode", in, "--from", codec, "-o", out, "--quantizers", "9"}), 2);
  EXPECT_EQ(run_program({"codec", "encode", folder.path() + "/absent", "--from", codec, "-o", out}), 1);
  EXPECT_EQ(run_program({"codec", "enkode"}), 2);
}

// The real program, killed again and again in a folder of recordings.
TEST(CodecCommand, KilledAtAnyMomentLeavesNoHalfFile) {
  TemporaryFolder folder;
  const std::string codec = write_small_codec(folder / "codec.safetensors", 1);
  constexpr int kFiles = 60;
  for (int i = 0; i < kFiles; ++i)
    write_audio(folder / ("in/" + std::to_string(i) + ".wav"), noise(24000, static_cast<uint64_t>(i)), 8000);
  const std::string in = folder.path() + "/in", out = folder.path() + "/out";
  const auto start = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::freopen("/dev/null", "w", stdout);
      ::freopen("/dev/null", "w", stderr);
      ::execl(MELETE_PROGRAM, MELETE_PROGRAM, "codec", "encode", in.c_str(), "--from", codec.c_str(), "-o",
              out.c_str(), "--skip_existing", "--threads", "1", nullptr);
      ::_exit(99);
    }
    return child;
  };
  const auto tokens = [&] {
    int64_t count = 0;
    if (!fs::exists(out)) return count;
    for (const auto& entry : fs::directory_iterator(out)) {
      if (entry.path().extension() != ".tokens") continue;
      EXPECT_EQ(TokenFile(entry.path().string()).frames(), 3000) << entry.path();
      ++count;
    }
    return count;
  };
  Rng rng(11);
  int kills = 0;
  for (int round = 0; round < 30 && tokens() < kFiles; ++round) {
    const pid_t child = start();
    const int64_t before = tokens();
    // Not before it has begun to write, then at a moment that nobody chose.
    for (int i = 0; i < 400 && tokens() == before; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::this_thread::sleep_for(std::chrono::microseconds(rng.integer(0, 60000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    kills += WIFSIGNALED(status) ? 1 : 0;
    tokens();
    if (kills == 6) break;
  }
  EXPECT_GT(kills, 0);
  const pid_t child = start();
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(tokens(), kFiles);
}

TEST(CodecEval, CurveOverQuantizersBesideOpus) {
  EXPECT_EQ(quantizer_counts(3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(quantizer_counts(12), (std::vector<int64_t>{1, 2, 4, 8, 12}));
  const SoundStreamCodec codec(small_codec());
  const std::vector<float> wave = noise(16000, 3);
  const std::vector<EvalRecording> recordings = {{"a", at::tensor(wave).unsqueeze(0)}};
  const CodecEval eval = eval_codec_beside_opus(codec, recordings);
  ASSERT_EQ(eval.points.size(), 4u + 3u);
  ASSERT_EQ(eval.stages.size(), 4u);
  EXPECT_NEAR(eval.points[1].bits_per_second, 2 * eval.points[0].bits_per_second, 1e-6);
  const RatePoint &six = eval.points[4], &most = eval.points[6];
  EXPECT_TRUE(six.opus);
  EXPECT_GT(most.bits_per_second, six.bits_per_second);
  EXPECT_GT(most.figure("si_sdr"), 3);
  // Opus beats weights that were never trained
  EXPECT_LT(most.figure("mel_distance"), eval.points[3].figure("mel_distance"));
  EXPECT_GT(most.figure("extended_stoi"), eval.points[3].figure("extended_stoi"));
  EXPECT_THROW(most.figure("loudness"), Error);
  const Image image = rate_quality_plot(eval, "extended_stoi");
  EXPECT_GT(image.width, 300);
}

}  // namespace codec_files_test
}  // namespace melete
