#include "io/base/resample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/safetensors.h"

namespace melete {
namespace resample_test {

std::vector<float> noise(int64_t count, uint64_t key) {
  Rng rng(key);
  std::vector<float> wave(static_cast<size_t>(count));
  for (float& sample : wave) sample = static_cast<float>(rng.uniform(-1, 1));
  return wave;
}

// torchaudio's own formulation, in double: every output is a sum over the whole padded filter.
std::vector<double> reference(const std::vector<float>& in, int64_t from, int64_t to) {
  const int64_t common = std::gcd(from, to);
  from /= common;
  to /= common;
  const double cutoff = static_cast<double>(std::min(from, to)) * 0.99;
  const auto width = static_cast<int64_t>(std::ceil(6 * static_cast<double>(from) / cutoff));
  const auto size = static_cast<int64_t>(in.size());
  std::vector<double> out;
  for (int64_t i = 0; i * from < size * to; ++i) {
    const int64_t block = i / to, phase = i % to;
    double sum = 0;
    for (int64_t k = -width; k < width + from; ++k) {
      const int64_t at = block * from + k;
      if (at < 0 || at >= size) continue;
      const double t = std::clamp((-static_cast<double>(phase) / static_cast<double>(to) +
                                   static_cast<double>(k) / static_cast<double>(from)) *
                                      cutoff,
                                  -6.0, 6.0);
      const double window = std::pow(std::cos(t * std::numbers::pi / 12), 2);
      const double sinc = t == 0 ? 1.0 : std::sin(std::numbers::pi * t) / (std::numbers::pi * t);
      sum += sinc * window * cutoff / static_cast<double>(from) * in[static_cast<size_t>(at)];
    }
    out.push_back(sum);
  }
  return out;
}

const std::vector<std::pair<int, int>> kPairs = {
    {24000, 16000}, {16000, 24000}, {44100, 16000}, {22050, 16000}, {48000, 16000}, {8000, 48000},
    {44100, 48000}, {16000, 16000}, {11025, 44100}, {7, 5},         {96000, 16000}};

TEST(Resample, EqualsTheFormula) {
  for (const auto& [from, to] : kPairs) {
    if (from == to) continue;
    const std::vector<float> in = noise(997, 1);
    const std::vector<float> out = Resampler(from, to).run(in);
    const std::vector<double> expected = reference(in, from, to);
    ASSERT_EQ(out.size(), expected.size()) << from << " -> " << to;
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], expected[i], 5e-5) << from << " -> " << to << " frame " << i;
  }
}

TEST(Resample, EqualsTorchaudio) {
  const SafetensorsFile file(MELETE_SOURCE_DIR "/tests/golden/audiolm/resample/io.safetensors");
  for (const auto& [from, to] : {std::pair{24000, 16000}, {16000, 24000}, {44100, 16000}}) {
    const TensorBytes* in = file.find(fmt::format("in.{}_to_{}", from, to));
    const TensorBytes* expected = file.find(fmt::format("out.{}_to_{}", from, to));
    ASSERT_TRUE(in && expected);
    const auto* in_data = reinterpret_cast<const float*>(in->bytes.data());
    const auto* expected_data = reinterpret_cast<const float*>(expected->bytes.data());
    const int64_t in_size = in->shape[1], out_size = expected->shape[1];
    double worst = 0;
    for (int64_t row = 0; row < in->shape[0]; ++row) {
      const std::vector<float> out =
          Resampler(from, to).run(std::span(in_data + row * in_size, static_cast<size_t>(in_size)));
      ASSERT_EQ(static_cast<int64_t>(out.size()), out_size);
      for (int64_t i = 0; i < out_size; ++i)
        worst = std::max(worst, std::abs(static_cast<double>(out[static_cast<size_t>(i)]) -
                                         static_cast<double>(expected_data[row * out_size + i])));
    }
    EXPECT_LT(worst, 1e-5) << from << " -> " << to;
    RecordProperty(fmt::format("worst_{}_{}", from, to), fmt::format("{}", worst));
  }
}

TEST(Resample, AnySegmentEqualsTheWhole) {
  Rng rng(3);
  for (const auto& [from, to] : kPairs) {
    const Resampler resampler(from, to);
    const std::vector<float> in = noise(2003, 2);
    const std::vector<float> whole = resampler.run(in);
    const auto size = static_cast<int64_t>(whole.size());
    for (int repeat = 0; repeat < 40; ++repeat) {
      const int64_t begin = rng.integer(0, size), end = rng.integer(begin, size) + 1;
      const auto range = resampler.source_range(begin, end);
      const int64_t first = std::max<int64_t>(range.begin, 0), last = std::min<int64_t>(range.end, 2003);
      ASSERT_LT(first, last);
      const std::vector<float> part(in.begin() + first, in.begin() + last);
      std::vector<float> out(static_cast<size_t>(end - begin));
      resampler.run(part, first, begin, out);
      for (int64_t i = begin; i < end; ++i)
        ASSERT_EQ(out[static_cast<size_t>(i - begin)], whole[static_cast<size_t>(i)])
            << from << " -> " << to << " [" << begin << ", " << end << ") frame " << i;
    }
  }
}

TEST(Resample, LengthsAndIdentity) {
  for (const auto& [from, to] : kPairs)
    for (const int64_t frames : {0, 1, 2, 159, 160, 161, 441, 100000})
      EXPECT_EQ(Resampler(from, to).output_frames(frames), (frames * to + from - 1) / from);
  const std::vector<float> in = noise(100, 4);
  EXPECT_EQ(Resampler(16000, 16000).run(in), in);
  EXPECT_TRUE(Resampler(48000, 24000).run(std::vector<float>{}).empty());
}

TEST(Resample, KeepsATone) {
  constexpr double kHz = 440;
  std::vector<float> in(44100);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<float>(std::sin(2 * std::numbers::pi * kHz * static_cast<double>(i) / 44100));
  const std::vector<float> out = Resampler(44100, 16000).run(in);
  for (size_t i = 100; i + 100 < out.size(); ++i)
    ASSERT_NEAR(out[i], std::sin(2 * std::numbers::pi * kHz * static_cast<double>(i) / 16000), 2e-3);
}

TEST(Resample, RefusesWrongSettings) {
  EXPECT_THROW(Resampler(0, 16000), Error);
  EXPECT_THROW(Resampler(16000, -1), Error);
  EXPECT_THROW(Resampler(16000, 8000, 0), Error);
  EXPECT_THROW(Resampler(16000, 8000, 6, 0.0), Error);
  EXPECT_THROW(Resampler(16000, 8000).output_frames(-1), Error);
}

}  // namespace resample_test
}  // namespace melete
