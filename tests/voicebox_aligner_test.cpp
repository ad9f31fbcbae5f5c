// The aligner: what it hears, the search against all paths there are, the prior, the losses' signs.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/torch.h>

#include "gradient_check.h"
#include "systems/voicebox/align_recordings.h"
#include "systems/voicebox/aligner.h"
#include "systems/voicebox/phoneme_frames.h"

namespace melete::voicebox {

namespace voicebox_aligner_test {

// The best sum over all ways to give `frames` frames to phonemes in order, each at least one, by trying all.
double best_by_force(const at::Tensor& scores, int64_t frame, int64_t phoneme) {  // [frames, n]
  const double here = scores[frame][phoneme].item<double>();
  if (frame == 0) return phoneme == 0 ? here : -1e30;
  double before = best_by_force(scores, frame - 1, phoneme);
  if (phoneme > 0) before = std::max(before, best_by_force(scores, frame - 1, phoneme - 1));
  return here + before;
}

double sum_along(const at::Tensor& scores, const at::Tensor& path) {
  return scores.masked_select(path).sum().item<double>();
}

AlignerConfig small_config() {
  AlignerConfig config;
  config.phonemes = 8;
  config.phoneme_dim = 8;
  config.frame_dim = 5;
  config.attention_dim = 6;
  config.temperature = 1;
  return config;
}

TEST(VoiceboxAligner, SearchEqualsBruteForce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int64_t frames = 4 + static_cast<int64_t>(seed % 6), count = 1 + static_cast<int64_t>(seed % 4);
    const at::Tensor scores = noise({1, frames, count}, seed);
    const at::Tensor durations = monotonic_durations(scores, at::tensor({frames}), at::tensor({count}));
    EXPECT_EQ(durations.sum().item<int64_t>(), frames);
    EXPECT_GE(durations.min().item<int64_t>(), 1);
    EXPECT_NEAR(sum_along(scores, path_of_durations(durations, frames)),
                best_by_force(scores[0], frames - 1, count - 1), 1e-4);
  }
}

TEST(VoiceboxAligner, SearchKeepsToItsLengths) {
  const at::Tensor scores = noise({2, 12, 5}, 3);
  const at::Tensor both = monotonic_durations(scores, at::tensor({12, 7}), at::tensor({5, 3}));
  const at::Tensor alone = monotonic_durations(scores.narrow(0, 1, 1).narrow(1, 0, 7).narrow(2, 0, 3),
                                               at::tensor({7}), at::tensor({3}));
  EXPECT_TRUE(both[1].narrow(0, 0, 3).equal(alone[0]));
  EXPECT_EQ(both[1].narrow(0, 3, 2).sum().item<int64_t>(), 0);
}

TEST(VoiceboxAligner, PriorIsADistributionAlongTheDiagonal) {
  const at::Tensor lengths = at::tensor({20, 9}), counts = at::tensor({6, 4});
  const at::Tensor prior = diagonal_prior(lengths, counts, 20, 6, 1).exp();
  expect_close(prior[0].sum(-1), at::ones({20}), 1e-4);
  expect_close(prior[1].narrow(0, 0, 9).narrow(1, 0, 4).sum(-1), at::ones({9}), 1e-4);
  const at::Tensor places = at::arange(6, at::kFloat);
  const at::Tensor mean = (prior[0] * places).sum(-1);
  EXPECT_TRUE((mean.diff() > 0).all().item<bool>());
}

TEST(VoiceboxAligner, HearsTheSpeechWithoutTheSilenceAroundIt) {
  MelFramesConfig config;
  config.rate_hz = 16000;
  config.mels = 20;
  config.n_fft = config.window = 512;
  config.hop = 160;
  config.edges = "same";
  const MelFrames mel(config);
  const at::Tensor speech = 0.1 * noise({8000}, 7);
  const at::Tensor waves = at::zeros({2, 16000});
  waves[0].narrow(0, 3200, 8000) += speech;  // 20 frames of silence, 50 of sound, 30 of silence
  waves[0] += 1e-5 * noise({16000}, 8);      // a microphone is never quite silent
  waves[1].narrow(0, 0, 8000) += 0.2 * speech;
  const AlignerFrames heard = aligner_frames(mel, waves, at::tensor({16000, 8000}));
  // Windows reach a frame beyond the sound, and two more are left as a margin.
  EXPECT_NEAR(heard.begins[0].item<double>(), 17, 1);
  EXPECT_NEAR(heard.lengths[0].item<double>(), 56, 2);
  EXPECT_EQ(heard.begins[1].item<int64_t>(), 0);
  EXPECT_EQ(heard.lengths[1].item<int64_t>(), 50);
  EXPECT_EQ(heard.frames.size(1), heard.lengths.max().item<int64_t>());
  for (int64_t row = 0; row < 2; ++row) {
    const at::Tensor own = heard.frames[row].narrow(0, 0, heard.lengths[row].item<int64_t>());
    EXPECT_NEAR(own.mean().item<double>(), 0, 1e-4);
    EXPECT_NEAR(own.square().mean().item<double>(), 1, 1e-3);
  }
}

TEST(VoiceboxAligner, APathThatRunsThroughAllPhonemesIsSeen) {
  Timings found;
  found.list.resize(2);
  found.list[0].ends_seconds = {0.02, 0.03, 0.04, 0.05, 2};  // the three between the first and the last
  EXPECT_NEAR(short_share(found, 0.01), 1, 1e-9);
  found.list[1].ends_seconds = {0.02, 0.1, 0.2, 0.21, 2};
  EXPECT_NEAR(short_share(found, 0.01), 4.0 / 6, 1e-9);
  EXPECT_EQ(short_share({}, 0.01), 0);
}

TEST(VoiceboxAligner, PaddingChangesNothing) {
  Aligner model(small_config());
  const at::NoGradGuard no_grad;
  AlignerInput alone;
  alone.frames = noise({1, 14, 5}, 1);
  alone.phonemes = torch::tensor({{3, 1, 4, 1}});
  alone.frame_lengths = at::tensor({14});
  alone.phoneme_lengths = at::tensor({4});
  AlignerInput with = alone;
  with.frames = at::constant_pad_nd(alone.frames, {0, 0, 0, 5}, 3);
  with.phonemes = at::constant_pad_nd(alone.phonemes, {0, 2}, -1);
  const Alignment a = model->forward(alone), b = model->forward(with);
  expect_close(b.soft.narrow(1, 0, 14).narrow(2, 0, 4), a.soft, 1e-4);
  EXPECT_TRUE(b.durations.narrow(1, 0, 4).equal(a.durations));
  expect_close(forward_sum_loss(b.scores, with.frame_lengths, with.phoneme_lengths),
               forward_sum_loss(a.scores, alone.frame_lengths, alone.phoneme_lengths), 1e-4);
  expect_close(binarisation_loss(b), binarisation_loss(a), 1e-4);
}

TEST(VoiceboxAligner, LossesHaveTheRightSign) {
  // Scores that say just what the path is: both losses near their least.
  const at::Tensor durations = torch::tensor({{3, 2, 4}});
  Alignment sure;
  sure.hard = path_of_durations(durations, 9);
  sure.scores = sure.hard.to(at::kFloat) * 20;
  Alignment unsure = sure;
  unsure.scores = at::zeros({1, 9, 3});
  EXPECT_LT(binarisation_loss(sure).item<double>(), 1e-3);
  EXPECT_NEAR(binarisation_loss(unsure).item<double>(), std::log(3.0), 1e-4);
  const at::Tensor frames = at::tensor({9}), count = at::tensor({3});
  EXPECT_LT(forward_sum_loss(sure.scores, frames, count).item<double>(),
            forward_sum_loss(unsure.scores, frames, count).item<double>());
}

TEST(VoiceboxAligner, LearnsToTellThreeSoundsApart) {
  // Three phonemes with frames of their own, of lengths that change from row to row, and noise.
  torch::manual_seed(1);
  AlignerConfig config = small_config();
  Aligner model(config);
  const at::Tensor sounds = 2 * noise({8, 5}, 2);
  const at::Tensor truth = torch::tensor({{5, 9, 3, 7}, {8, 2, 9, 5}, {3, 6, 6, 9}, {7, 7, 7, 3}});
  const at::Tensor phonemes = torch::tensor({{0, 3, 5, 1}, {5, 0, 2, 7}, {6, 4, 0, 3}, {1, 2, 3, 4}});
  AlignerInput input;
  input.phonemes = phonemes;
  input.phoneme_lengths = at::full({4}, 4, at::kLong);
  input.frame_lengths = at::full({4}, 24, at::kLong);
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < 4; ++row)
    rows.push_back(at::embedding(sounds, phonemes[row]).repeat_interleave(truth[row], 0));
  input.frames = at::stack(rows) + 0.2 * noise({4, 24, 5}, 3);
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(5e-3));
  for (int step = 0; step < 150; ++step) {
    const Alignment alignment = model->forward(input, 1);
    const at::Tensor loss = forward_sum_loss(alignment.scores, input.frame_lengths, input.phoneme_lengths) +
                            (step > 75 ? binarisation_loss(alignment) : at::zeros({}));
    adam.zero_grad();
    loss.backward();
    adam.step();
  }
  const at::NoGradGuard no_grad;
  const at::Tensor found = model->forward(input, 1).durations;
  const auto frames_off = [&](const at::Tensor& durations) {
    return (durations - truth).abs().to(at::kFloat).mean().item<double>();
  };
  EXPECT_LT(frames_off(found), 0.5 * frames_off(at::full_like(truth, 6))) << found;  // against equal shares
}

}  // namespace voicebox_aligner_test
}  // namespace melete::voicebox
