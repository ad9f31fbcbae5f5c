// The averaged codec is held to the online one: its codebooks are the online ones, which move by themselves
// and jump when a code is revived.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>

#include "core/base/random.h"
#include "every_recipe.h"
#include "nn/codebook.h"
#include "systems/soundstream/task.h"

namespace melete {
namespace averaged_codec_test {

constexpr int64_t kSteps = 120;

// Chords that come and go: batch n is a function of n.
class Chords : public BatchSource {
 public:
  Chords(int64_t items, int64_t samples, int64_t rate_hz, uint64_t seed)
      : items_(items), samples_(samples), rate_hz_(rate_hz), seed_(seed) {}
  Batch batch(int64_t number) override {
    std::vector<at::Tensor> rows;
    const at::Tensor time = at::arange(samples_, at::kFloat) / static_cast<double>(rate_hz_);
    for (int64_t item = 0; item < items_; ++item) {
      Rng rng(random_key(seed_, "chord", {static_cast<uint64_t>(number * items_ + item)}));
      at::Tensor sound = at::zeros({samples_});
      for (int note = 0; note < 3; ++note)
        sound += rng.uniform(0.05, 0.25) *
                 at::sin(2 * M_PI * 110 * std::exp2(rng.uniform(0, 3)) * time + rng.uniform(0, 6));
      rows.push_back(sound * at::exp(-rng.uniform(0, 4) * time));
    }
    Batch made;
    made.number = number;
    made.set("wave", at::stack(rows));
    made.set(Batch::length_column("wave"), at::full({items_}, samples_, at::kLong));
    return made;
  }

 private:
  int64_t items_, samples_, rate_hz_;
  uint64_t seed_;
};

double held_out_si_sdr(Task& task, BatchSource& held_out) {
  const at::NoGradGuard no_grad;
  task.model().eval();
  StepContext context;
  context.training = false;
  for (const auto& [name, value] : task.validate(held_out.batch(0), context).named)
    if (name == "si_sdr") return value.item<double>();
  ADD_FAILURE() << "no si_sdr";
  return 0;
}

TEST(AveragedCodec, IsNoWorseThanTheOnlineOne) {
  Prepared made = prepare("soundstream", 4, [](Schema& s) {
    s.set("model.codec.sample_rate_hz", "8000");
    s.set("model.codec.front_hop", "80");
    s.set("model.codec.noise_from_hz", "0");
    s.set("model.codec.channels", "32");
    s.set("model.codec.dim", "16");
    s.set("model.codec.quantizer.quantizers", "4");
    s.set("model.codec.quantizer.codebook_size", "128");
    s.set("model.codec.quantizer.search_beams", "1");
    s.set("model.codec.quantizer.decay", "0.8");
    s.set("model.codec.quantizer.dead_code_threshold", "2");  // codes are revived all the time
    s.set("model.loss.root_spectrum.phase_below_hz", "4000");
    s.set("data.segment_seconds", "0.4");
    s.set("generator.schedule.kind", "constant");
    s.set("train.ema.beta", "0.98");
    s.set("train.ema.update_after_step", "0");
    s.set("train.precision", "fp32");
  });
  Chords training(4, 3200, 8000, 1), held_out(8, 3200, 8000, 2);
  // Beside the trainer's own average one that takes in everything, as audiolm-pytorch's does.
  Trainer trainer({*made.task, training}, made.config);
  Ema everything(made.task->model(), made.config.ema,
                 [](const std::string& name) { return name.starts_with("codec."); });
  for (int64_t step = 0; step < kSteps; ++step) {
    ASSERT_FALSE(trainer.step().skipped);
    everything.update();
  }
  const double online = held_out_si_sdr(*made.task, held_out);
  double averaged, with_codebooks;
  std::map<std::string, at::Tensor> before;
  for (const auto& item : made.task->model().named_buffers()) before[item.key()] = item.value().clone();
  {
    const EmaScope scope(*trainer.ema());
    int64_t codebooks = 0;
    for (const auto& item : made.task->model().named_buffers())
      if (of_codebook(item.key())) {
        ++codebooks;
        EXPECT_TRUE(item.value().equal(before.at(item.key()))) << item.key();
      }
    EXPECT_EQ(codebooks, 4 * 4) << "of four stages: codes, sums, counts, whether they were placed";
    averaged = held_out_si_sdr(*made.task, held_out);
  }
  {
    const EmaScope scope(everything);
    with_codebooks = held_out_si_sdr(*made.task, held_out);
  }
  std::printf("  SI-SDR: online %.2f dB, averaged %.2f dB, with averaged codebooks %.2f dB\n", online,
              averaged, with_codebooks);
  EXPECT_GT(averaged, online - 0.3);
  EXPECT_LT(with_codebooks, online - 0.6) << "there is nothing to hold it to";
}

TEST(AveragedCodec, AsUpstreamAveragesItsCodebooksToo) {
  for (const bool as_upstream : {false, true}) {
    SoundStreamTaskConfig config;
    config.model.codec.channels = 2;
    config.model.codec.strides = {2};
    config.model.codec.channel_multiples = {1};
    config.model.codec.dim = 4;
    config.model.codec.attention = false;
    config.model.codec.quantizer.quantizers = 2;
    config.model.codec.quantizer.codebook_size = 4;
    config.model.codec.as_audiolm_pytorch = as_upstream;
    SoundStreamTask task(config, {});
    int64_t codebooks = 0;
    for (const auto& item : task.model().named_buffers())
      if (of_codebook(item.key())) {
        ++codebooks;
        EXPECT_EQ(task.averaged(item.key()), as_upstream) << item.key();
      }
    EXPECT_EQ(codebooks, 2 * 4);
    for (const auto& item : task.model().named_parameters())
      EXPECT_EQ(task.averaged(item.key()), as_upstream || item.key().starts_with("codec.")) << item.key();
  }
}

}  // namespace averaged_codec_test
}  // namespace melete
