// A recording through a trained codec: wave -> codes -> the first few quantizers of them -> wave.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/engine.h"
#include "io/base/audio_file.h"
#include "systems/soundstream/load.h"

namespace {

constexpr int64_t kQuantizers = 3;  // each one refines what the ones before it left over

void run(const char* from, const char* in, const char* out, int64_t wanted) {
  melete::LoadedCodec loaded = melete::load_codec(from);
  melete::SoundStream& codec = loaded.model;
  const at::NoGradGuard no_grad;

  const melete::Audio audio = melete::read_audio(in);
  const at::Tensor mono = at::tensor(melete::downmix(audio)).unsqueeze(0);  // [1, samples]
  const at::Tensor codes = codec->tokenize(mono, audio.rate_hz);  // [groups, 1, frames, quantizers] int64

  const int64_t all = codes.size(3), kept = wanted > 0 ? std::min(wanted, all) : all;
  const at::Tensor wave = codec->decode_codes(codes.narrow(3, 0, kept)).flatten().contiguous();  // [samples]
  const int rate_hz = static_cast<int>(codec->config().sample_rate_hz);
  melete::write_audio(out, {wave.data_ptr<float>(), static_cast<size_t>(wave.numel())}, rate_hz);

  const double share = static_cast<double>(kept) / static_cast<double>(all);
  std::printf("%s (step %lld): %lld frames, %lld of %lld quantizers, %.2f kbit/s -> %s\n",
              loaded.path.c_str(), static_cast<long long>(loaded.step), static_cast<long long>(codes.size(2)),
              static_cast<long long>(kept), static_cast<long long>(all),
              codec->bits_per_second() * share / 1000, out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr,
                 "usage: encode_decode RUN_OR_CHECKPOINT in.wav out.wav [QUANTIZERS, 3 when not given]\n");
    return 2;
  }
  melete::prepare_process(argc, argv);  // threads, memory and vector width; may start the program anew once
  try {
    run(argv[1], argv[2], argv[3], argc == 5 ? std::atoll(argv[4]) : kQuantizers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "encode_decode: %s\n", error.what());
    return 1;
  }
  return 0;
}
