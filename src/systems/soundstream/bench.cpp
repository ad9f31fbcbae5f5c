// What a SoundStream training step costs, whole and by part, and how fast the codec runs.
#include <fmt/format.h>
#include <torch/utils.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "core/autocast.h"
#include "core/base/random.h"
#include "data/recordings.h"
#include "io/base/audio_file.h"
#include "measure/noise_batches.h"
#include "systems/soundstream/codec.h"
#include "systems/soundstream/system.h"
#include "systems/soundstream/task.h"
#include "train/trainer.h"

namespace melete {

namespace {

struct SoundStreamBenchConfig {
  SoundStreamTaskConfig task;  // defaults: the size that docs/performance.md compares with audiolm-pytorch
  int64_t batch_size = 4;
  double seconds = 0;         // of a segment; 0: as the recipe says, or 1
  double codec_seconds = 10;  // of the recording that encode and decode are timed on
  bool parts = true;
  // What else a recipe for training says, so that it can be given here: only the segment's length counts.
  RecordingsConfig data;
  TrainerConfig train;

  double segment_seconds() const;
};
// A folder of recordings that lives as long as this.
class TemporaryRecordings {
 public:
  TemporaryRecordings(int rate_hz, double seconds, int count) {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("melete-bench-{}", getpid());
    std::filesystem::create_directories(folder_);
    Rng rng(1);
    std::vector<float> samples(static_cast<size_t>(seconds * rate_hz));
    for (float& sample : samples) sample = static_cast<float>(0.1 * rng.normal());
    for (int i = 0; i < count; ++i)
      write_audio((folder_ / fmt::format("{}.wav", i)).string(), samples, rate_hz);
  }
  ~TemporaryRecordings() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

// Forward and backward of one part, under the precision of the run.
template <class Forward>
std::function<void()> both_ways(bool bf16, const Forward& forward) {
  return [bf16, forward] {
    at::Tensor loss;
    {
      const AutocastScope scope(at::kCPU, bf16);
      loss = forward().to(at::kFloat).square().mean();
    }
    loss.backward();
  };
}

void bench_parts(Bench& bench, SoundStreamGan& gan, const SoundStreamBenchConfig& config, bool bf16,
                 const at::Tensor& given) {
  SoundStream& codec = gan->codec;
  SeededDraws draws(1);
  const at::Tensor wave = codec->prepare(given);
  const at::Tensor leaf = wave.clone().set_requires_grad(true);
  const auto requires_grad = [](torch::nn::Module& module, bool on) {
    for (const at::Tensor& parameter : module.parameters()) parameter.set_requires_grad(on);
  };
  requires_grad(*gan, true);
  const at::Tensor encoded = codec->encode(wave).detach().to(at::kFloat).set_requires_grad(true);

  const int64_t rate = codec->config().sample_rate_hz;
  const TemporaryRecordings recordings(static_cast<int>(rate), 2 * config.segment_seconds(),
                                       static_cast<int>(config.batch_size));
  RecordingsConfig data;
  data.rates_hz = {rate};
  data.segment_seconds = config.segment_seconds();
  AudioDataset dataset(load_entries(recordings.path()), data);
  bench.measure("soundstream.data", [&] {
    std::vector<Item> items;
    for (int64_t i = 0; i < config.batch_size; ++i) items.push_back(dataset.draw(0, 0, i % dataset.size()));
    collate(items);
  });
  bench.measure("soundstream.encoder", both_ways(bf16, [&] { return codec->encode(wave); }));
  bench.measure("soundstream.quantizer",
                both_ways(bf16, [&] { return codec->quantizer->forward(encoded, &draws).vectors; }));
  bench.measure("soundstream.decoder", both_ways(bf16, [&] { return codec->decode(encoded); }));
  bench.measure("soundstream.stft_discriminator",
                both_ways(bf16, [&] { return gan->discriminators->stft(leaf.flatten(0, 1)).logits; }));
  for (size_t i = 0; i < gan->discriminators->scales->size(); ++i) {
    auto& scale = gan->discriminators->scales->at<MultiScaleDiscriminatorImpl>(i);
    at::Tensor scaled = leaf.detach();
    for (size_t halving = 0; halving < i; ++halving) scaled = at::avg_pool1d(scaled, {4}, {2}, {2});
    scaled = scaled.clone().set_requires_grad(true);
    bench.measure(fmt::format("soundstream.scale_discriminator_{}", i),
                  both_ways(bf16, [&scale, scaled] { return scale.forward(scaled).logits; }));
  }
  const MultiScaleMelLoss mel(config.task.model.loss.mel, rate);
  bench.measure("soundstream.mel_loss",
                both_ways(bf16, [&] { return mel(wave.flatten(0, 1), leaf.flatten(0, 1)); }));

  NamedTensors parameters;
  for (const auto& item : gan->named_parameters()) {
    item.value().mutable_grad() = at::zeros_like(item.value());
    parameters.emplace_back(item.key(), item.value());
  }
  Optimiser optimiser(parameters, config.task.generator.optimiser);
  bench.measure("soundstream.optimiser", [&] { optimiser.step(0.0); });
}

// A frame at a time with what the layers remember, as `melete codec --stream` works.
void bench_live(Bench& bench, SoundStream& codec, const at::Tensor& recording, const at::Tensor& codes) {
  const SoundStreamCodec live(codec);
  const Codec::LiveDelay delay = live.live_delay();
  const auto encoder = live.live_sound_to_codes();
  const auto decoder = live.live_codes_to_sound();
  const auto samples = static_cast<size_t>(live.samples_per_frame()),
             all = static_cast<size_t>(recording.numel());
  const float* sound = recording.data_ptr<float>();
  const at::Tensor frames =
      codes.squeeze(1).transpose(0, 1).contiguous();  // [frames, groups, codes of a group]
  const auto begin = std::min(all, static_cast<size_t>(delay.first_samples));
  encoder->push({sound, begin});
  decoder->push(
      frames.narrow(0, 0, std::min<int64_t>(frames.size(0), delay.first_samples / live.samples_per_frame())));
  size_t at = 0;
  const double frame_ms = 1000.0 / live.frames_per_second();
  BenchRow& in = bench.measure("soundstream.live_encode_frame", [&] {
    at = at + 2 * samples <= all ? at + samples : 0;
    encoder->push({sound + at, std::min(samples, all - at)});
  });
  in.note = fmt::format("{:.3g} ms of {:g} ms; delay {:g} ms", 1000 * in.seconds, frame_ms,
                        1000.0 * static_cast<double>(delay.samples) / static_cast<double>(live.rate_hz()));
  int64_t frame = 0;
  BenchRow& out = bench.measure("soundstream.live_decode_frame", [&] {
    frame = (frame + 1) % frames.size(0);
    decoder->push(frames.narrow(0, frame, 1));
  });
  out.note = fmt::format("{:.3g} ms of {:g} ms", 1000 * out.seconds, frame_ms);
}

void describe_all(Schema& s, SoundStreamBenchConfig& c) {
  describe(s, c.task);
  s.option("batch_size", c.batch_size, "segments of a batch").at_least(1);
  s.option("seconds", c.seconds, "length of a segment; 0: the recipe's, or 1").at_least(0).unit("s");
  s.option("codec_seconds", c.codec_seconds, "recording that encode and decode are timed on")
      .at_least(0)
      .unit("s");
  s.option("parts", c.parts, "time the parts of a step as well");
  s.section("data", c.data, "of a recipe: only segment_seconds counts here");
  s.section("train", c.train, "of a recipe: does not count here");
}

double SoundStreamBenchConfig::segment_seconds() const {
  return seconds > 0 ? seconds : data.segment_seconds > 0 ? data.segment_seconds : 1;
}

void bench_soundstream(Bench& bench, SoundStreamBenchConfig config, const std::string& precision) {
  const bool bf16 = precision == "bf16" && bf16_pays(at::kCPU);
  const int64_t rate = config.task.model.codec.sample_rate_hz;
  torch::manual_seed(1);
  const auto samples = static_cast<int64_t>(config.segment_seconds() * static_cast<double>(rate));
  const at::Tensor wave = 0.1 * at::randn({config.batch_size, samples});

  SoundStreamTaskConfig task_config = config.task;
  task_config.gradient_penalty_every = 0;
  SoundStreamTask task(task_config, {});
  Batch batch;
  batch.set("wave", wave);
  NoiseBatches batches(std::move(batch));
  TrainerConfig trainer_config;
  trainer_config.precision = precision;
  trainer_config.ema.update_every = 1;
  trainer_config.ema.update_after_step = 0;
  {
    Trainer trainer({task, batches}, trainer_config);
    bench.measure(
        "soundstream.train_step", [&] { trainer.step(); }, true);
  }
  if (config.parts) {
    task_config.gradient_penalty_every = 1;
    SoundStreamTask penalised(task_config, {});
    Trainer trainer({penalised, batches}, trainer_config);
    bench.measure(
        "soundstream.train_step_with_penalty", [&] { trainer.step(); }, true);
  }
  if (config.parts) bench_parts(bench, task.gan(), config, bf16, wave);

  SoundStream& codec = task.gan()->codec;
  codec->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor recording =
      0.1 * at::randn({1, static_cast<int64_t>(config.codec_seconds * static_cast<double>(rate))});
  const at::Tensor codes = codec->tokenize(recording);
  const auto under_precision = [bf16](const auto& work) {
    return [bf16, work] {
      const AutocastScope scope(at::kCPU, bf16);
      work();
    };
  };
  const auto real_time = [&](const char* name, const std::function<void()>& work) {
    BenchRow& row = bench.measure(name, work);
    row.note = fmt::format("{:.0f} x real time", config.codec_seconds / row.seconds);
  };
  real_time("soundstream.encode", under_precision([&] { codec->tokenize(recording); }));
  real_time("soundstream.decode", under_precision([&] { codec->decode_codes(codes); }));
  if (codec->config().input_channels == 1) bench_live(bench, codec, recording, codes);
}

class SoundStreamBenchmark final : public Benchmark {
 public:
  void describe(Schema& schema) override { describe_all(schema, config_); }
  void run(Bench& bench, const std::string& precision) override {
    bench_soundstream(bench, config_, precision);
  }

 private:
  SoundStreamBenchConfig config_;
};

}  // namespace

std::unique_ptr<Benchmark> make_soundstream_benchmark() {
  return std::make_unique<SoundStreamBenchmark>();
}

}  // namespace melete
