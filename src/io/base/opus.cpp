#include "io/base/opus.h"

#include <opus.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "core/base/error.h"
#include "io/base/resample.h"

namespace melete {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int opus_rate(int rate_hz) {
  for (const int rate : {8000, 12000, 16000, 24000})
    if (rate_hz <= rate) return rate;
  return 48000;
}

}  // namespace

OpusResult through_opus(std::span<const float> mono, int rate_hz, int bits_per_second) {
  const int rate = opus_rate(rate_hz);
  const Resampler there(rate_hz, rate), back(rate, rate_hz);
  std::vector<float> input = there.run(mono);
  const size_t wanted = input.size();

  int code = OPUS_OK;
  const std::unique_ptr<OpusEncoder, void (*)(OpusEncoder*)> encoder(
      opus_encoder_create(rate, 1, OPUS_APPLICATION_AUDIO, &code), opus_encoder_destroy);
  require(code == OPUS_OK, "[opus] {}", opus_strerror(code));
  const std::unique_ptr<OpusDecoder, void (*)(OpusDecoder*)> decoder(opus_decoder_create(rate, 1, &code),
                                                                     opus_decoder_destroy);
  require(code == OPUS_OK, "[opus] {}", opus_strerror(code));
  opus_encoder_ctl(encoder.get(), OPUS_SET_BITRATE(bits_per_second));
  opus_encoder_ctl(encoder.get(), OPUS_SET_COMPLEXITY(10));
  opus_int32 delay = 0;
  opus_encoder_ctl(encoder.get(), OPUS_GET_LOOKAHEAD(&delay));

  // Whole packets of 20 ms, with room for the delay at the end.
  const auto packet = static_cast<size_t>(rate / 50);
  const size_t packets = (wanted + static_cast<size_t>(delay) + packet - 1) / packet;
  input.resize(packets * packet, 0.0f);
  std::vector<std::vector<unsigned char>> coded(packets);
  OpusResult result;
  size_t bytes = 0;
  auto begin = Clock::now();
  for (size_t i = 0; i < packets; ++i) {
    coded[i].resize(4000);
    const opus_int32 size =
        opus_encode_float(encoder.get(), input.data() + i * packet, static_cast<int>(packet), coded[i].data(),
                          static_cast<opus_int32>(coded[i].size()));
    require(size >= 0, "[opus] {}", opus_strerror(size));
    coded[i].resize(static_cast<size_t>(size));
    bytes += coded[i].size();
  }
  result.encode_seconds = since(begin);
  std::vector<float> output(packets * packet);
  begin = Clock::now();
  for (size_t i = 0; i < packets; ++i) {
    const int got =
        opus_decode_float(decoder.get(), coded[i].data(), static_cast<opus_int32>(coded[i].size()),
                          output.data() + i * packet, static_cast<int>(packet), 0);
    require(got == static_cast<int>(packet), "[opus] a packet gave {} samples instead of {}", got, packet);
  }
  result.decode_seconds = since(begin);
  const auto first = output.begin() + delay;
  const std::vector<float> aligned(first, first + static_cast<std::ptrdiff_t>(wanted));
  result.samples = back.run(aligned);
  result.samples.resize(mono.size(), 0.0f);
  const double seconds = static_cast<double>(packets * packet) / rate;
  result.bits_per_second = seconds > 0 ? static_cast<double>(bytes) * 8 / seconds : 0;
  return result;
}

}  // namespace melete
