// Pieces in windows, with stages that have learned nothing and a codec whose every frame can be told by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "core/base/error.h"
#include "roles/codec.h"
#include "roles/semantic_tokenizer.h"
#include "systems/musiclm/long_piece.h"
#include "toy_embedding.h"

namespace melete::musiclm {
namespace musiclm_long_piece_test {

using melete::testing::ToyEmbedding;
using ::testing::ElementsAre;

constexpr int64_t kRate = 1000, kHop = 100, kCodes = 8, kSeam = 10;
constexpr float kTilt = 1e-3f;

// A frame is a constant, an eighth of its code, plus a little for its place, so that the same codes sound
// otherwise elsewhere; a second quantizer changes nothing.
class StepCodec final : public Codec {
 public:
  std::string kind() const override { return "steps"; }
  int64_t rate_hz() const override { return kRate; }
  int64_t samples_per_frame() const override { return kHop; }
  int64_t codebook_size() const override { return kCodes; }
  int64_t quantizers() const override { return 3; }
  const std::string& identity() const override { return identity_; }
  int64_t frames(int64_t samples) const override { return samples / kHop; }
  at::Tensor encode(const at::Tensor& audio) const override {
    const int64_t count = frames(audio.size(1));
    const at::Tensor mean = audio.narrow(1, 0, count * kHop).unflatten(1, {count, kHop}).mean(2);
    const at::Tensor first = at::round(mean * kCodes).clamp(0, kCodes - 1).to(at::kLong);
    return at::stack({first, at::zeros_like(first), at::zeros_like(first)}, 2);
  }
  at::Tensor decode(const at::Tensor& codes) const override {
    const at::Tensor place = at::arange(codes.size(1), at::kFloat) * kTilt;
    const at::Tensor level = codes.select(2, 0).to(at::kFloat) / kCodes + place;
    return level.repeat_interleave(kHop, 1);
  }

 private:
  std::string identity_ = "step codec";
};

class StepTokens final : public SemanticTokenizer {
 public:
  std::string kind() const override { return "steps"; }
  int64_t rate_hz() const override { return kRate; }
  int64_t samples_per_token() const override { return kHop; }
  int64_t codebook_size() const override { return kCodes; }
  const std::string& identity() const override { return identity_; }
  int64_t tokens(int64_t samples) const override { return samples / kHop; }
  int64_t shortest_samples() const override { return kHop; }
  at::Tensor tokenize(const at::Tensor& audio) const override { return codec_.encode(audio).select(2, 0); }

 private:
  StepCodec codec_;
  std::string identity_ = "step tokens";
};

// Remembers what it was asked to read.
class Reading final : public ToyEmbedding {
 public:
  int64_t rate_hz() const override { return kRate; }
  at::Tensor embed_text(const std::vector<std::string>& texts) const override {
    for (const std::string& text : texts) read.push_back(text);
    return ToyEmbedding::embed_text(texts);
  }
  mutable std::vector<std::string> read;
};

StageConfig tiny() {
  StageConfig config;
  config.transformer = {32, 1, 1, 32};
  config.transformer.condition = "cross";
  config.text_dim = 16;
  return config;
}

struct Made {
  MusicLm model;
  std::shared_ptr<Reading> embedding = std::make_shared<Reading>();

  Made() {
    torch::manual_seed(3);
    SemanticConfig semantic;
    semantic.stage = tiny();
    semantic.semantic_tokens = kCodes;
    model.audiolm.semantic = SemanticTransformer(semantic);
    CoarseConfig coarse;
    coarse.stage = tiny();
    coarse.semantic_tokens = coarse.codebook_size = kCodes;
    coarse.quantizers = 2;
    model.audiolm.coarse = CoarseTransformer(coarse);
    FineConfig fine;
    fine.stage = tiny();
    fine.codebook_size = kCodes;
    fine.coarse_quantizers = 2;
    fine.fine_quantizers = 1;
    model.audiolm.fine = FineTransformer(fine);
    EmbedQuantizerConfig condition;
    condition.dim = 4;
    condition.quantizers = 2;
    condition.codebook_size = 4;
    condition.stage_dims = {16, 16, 16};
    model.condition = EmbedQuantizer(condition);
    for (torch::nn::Module* part :
         std::initializer_list<torch::nn::Module*>{model.audiolm.semantic.get(), model.audiolm.coarse.get(),
                                                   model.audiolm.fine.get(), model.condition.get()})
      part->eval();
    model.audiolm.codec = std::make_shared<StepCodec>();
    model.audiolm.tokenizer = std::make_shared<StepTokens>();
    model.embedding = embedding;
  }

  MusicRequest request(double seconds, int64_t samples = 2) const {
    MusicRequest request;
    request.text = "a b";
    request.samples = samples;
    request.audiolm.seconds = seconds;
    request.audiolm.seed = 5;
    request.audiolm.may_end = false;
    request.audiolm.unique_consecutive = false;
    return request;
  }
};

LongPieceConfig windows_of(double seconds, double overlap) {
  LongPieceConfig config;
  config.window_seconds = seconds;
  config.overlap_seconds = overlap;
  return config;
}

at::Tensor prompt_wave() {
  return StepCodec().decode(at::tensor({7, 1, 6, 2}, at::kLong).view({1, 4, 1}).expand({1, 4, 3}))[0];
}

// The sound of a time, of every piece.
std::vector<at::Tensor> sound_of(const MusicResult& made, int64_t from, int64_t to) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& wave : made.audiolm.waves) parts.push_back(wave.slice(0, from, to));
  return parts;
}

TEST(LongPiece, IsAsLongAsAskedAndKeepsWhatItHad) {
  Made made;
  const LongPieceConfig config = windows_of(1, 0.4);
  MusicRequest asked = made.request(2.5);
  for (SamplingConfig* stage : {&asked.audiolm.semantic, &asked.audiolm.coarse, &asked.audiolm.fine})
    stage->filter = 0;  // of so few codes it leaves one, and both pieces were the same
  const MusicResult piece = generate_long(made.model, asked, config);
  ASSERT_EQ(piece.audiolm.waves.size(), 2u);
  for (const at::Tensor& wave : piece.audiolm.waves) EXPECT_EQ(wave.size(0), 2500);
  EXPECT_FALSE(at::equal(piece.audiolm.waves[0], piece.audiolm.waves[1]));
  // The first window is what it is alone, up to the seam.
  asked.audiolm.seconds = 1;
  const MusicResult first = generate(made.model, asked);
  for (size_t row = 0; row < 2; ++row)
    EXPECT_TRUE(at::equal(piece.audiolm.waves[row].slice(0, 0, 1000 - kSeam),
                          first.audiolm.waves[row].slice(0, 0, 1000 - kSeam)));
  // A length that is no whole number of frames, in windows that are none: a frame more at the most.
  for (const at::Tensor& wave :
       generate_long(made.model, made.request(2.25), windows_of(0.75, 0.33)).audiolm.waves)
    EXPECT_EQ(wave.size(0), 2300);
}

// What the window before ended with is played once more by the next one, three frames earlier in its own
// time; within the seam one becomes the other.
TEST(LongPiece, TheSeamLeadsFromOneWindowToTheNext) {
  Made made;
  const MusicResult piece = generate_long(made.model, made.request(1.8, 1), windows_of(1, 0.4));
  const at::Tensor wave = piece.audiolm.waves[0];
  const float before = wave[990 - 1].item<float>(), level = before - 9 * kTilt;  // frame 9 of the first
  for (int64_t i = 0; i < kSeam; ++i) {
    const float share = static_cast<float>(i) / (kSeam - 1);
    EXPECT_NEAR(wave[990 + i].item<float>(), before + share * (level + 3 * kTilt - before), 1e-5) << i;
  }
  // The next frame is the fifth of its window, whatever its code.
  const double rest = (wave[1000].item<double>() - 4 * kTilt) * kCodes;
  EXPECT_NEAR(rest, std::round(rest), 1e-3);
}

TEST(LongPiece, EveryWindowReadsTheTextOfItsTime) {
  Made made;
  LongPieceConfig config = windows_of(1, 0.5);
  config.story = parse_story("0 aa; 1.2 b");
  MusicRequest request = made.request(2, 1);
  request.text.clear();
  made.embedding->read.clear();
  generate_long(made.model, request, config);
  EXPECT_THAT(made.embedding->read, ElementsAre("aa", "aa", "b", "b"));  // 0, 1, 1.2 and 1.7 s
}

TEST(LongPiece, ScoresAreMeansOverWhatIsNew) {
  Made made;
  LongPieceConfig config = windows_of(1, 0.5);
  config.story = parse_story("0 a; 1.2 d");
  MusicRequest request = made.request(1.6, 3);
  request.text.clear();
  request.audiolm.prompt = prompt_wave();
  request.audiolm.prompt_rate_hz = kRate;
  const MusicResult piece = generate_long(made.model, request, config);
  EXPECT_EQ(piece.audiolm.prompt_samples, 400);
  at::Tensor expected = at::zeros({3});
  for (const PieceWindow& window : plan_windows(1.6, "", config)) {
    const auto begin = 400 + static_cast<int64_t>(std::llround(window.begin_seconds * kRate));
    const auto end = begin + static_cast<int64_t>(std::llround(window.seconds * kRate));
    expected += scores(*made.embedding, sound_of(piece, begin, end), kRate,
                       made.embedding->embed_text({window.text})) *
                (window.seconds / 1.6);
  }
  // Seams move a sample of a hundred a little.
  EXPECT_TRUE(at::allclose(piece.scores, expected, 0, 2e-3)) << piece.scores << expected;
  EXPECT_EQ(piece.best, piece.scores.argmax().item<int64_t>());
}

TEST(LongPiece, APromptComesFirstAndCountsForNothing) {
  Made made;
  for (const double window : {0.0, 0.6}) {
    MusicRequest request = made.request(1);
    request.text = "a";
    request.audiolm.prompt = prompt_wave();
    request.audiolm.prompt_rate_hz = kRate;
    const MusicResult piece = generate_long(made.model, request, windows_of(window, 0.3));
    for (const at::Tensor& wave : piece.audiolm.waves) {
      EXPECT_EQ(wave.size(0), 1400);
      EXPECT_TRUE(at::allclose(wave.slice(0, 0, 400), prompt_wave(), 0, 1e-5));
    }
    if (window > 0) continue;
    const at::Tensor goal = made.embedding->embed_text({"a"});
    EXPECT_TRUE(at::allclose(piece.scores, scores(*made.embedding, sound_of(piece, 400, 1400), kRate, goal),
                             0, 1e-6));
    EXPECT_FALSE(
        at::allclose(piece.scores, scores(*made.embedding, piece.audiolm.waves, kRate, goal), 0, 1e-3));
  }
}

TEST(LongPiece, PiecesThatMayEndHaveOneWindow) {
  Made made;
  MusicRequest request = made.request(2);
  request.audiolm.may_end = true;
  EXPECT_THROW(generate_long(made.model, request, windows_of(1, 0.4)), Error);
}

}  // namespace musiclm_long_piece_test
}  // namespace melete::musiclm
