#include "systems/vocos/task.h"

#include <algorithm>

#include "data/batch.h"
#include "losses/adversarial.h"
#include "losses/intelligibility.h"
#include "losses/quality.h"
#include "run/sample_writer.h"

namespace melete::vocos {

namespace {

constexpr int64_t kSamplesShown = 3;

SoundStreamGanConfig discriminator_config(const TaskConfig& config) {
  SoundStreamGanConfig result;
  result.codec.sample_rate_hz = config.mel.rate_hz;
  result.discriminator_scales = config.discriminator_scales;
  result.multi_scale = config.multi_scale;
  result.stft = config.stft;
  return result;
}

// As far as both reach: frames make whole hops.
at::Tensor as_long_as(const at::Tensor& wave, const at::Tensor& fake) {
  return wave.narrow(1, 0, std::min(wave.size(1), fake.size(1)));
}

}  // namespace

TaskConfig::TaskConfig() {
  mel.edges = "same";
  generator.optimiser.learning_rate = discriminator.optimiser.learning_rate = 2e-4;
  generator.schedule.kind = discriminator.schedule.kind = "cosine";
  generator.clip_norm = 10;
}

void TaskConfig::settle() {
  model.input_dim = mel.mels;
  model.n_fft = mel.n_fft;
  model.hop = mel.hop;
  model.edges = mel.edges;
}

void describe(Schema& s, LossConfig& c) {
  s.option("mel_weight", c.mel_weight, "of the distance between mel frames").at_least(0);
  s.option("scales_weight", c.scales_weight, "of the multi-scale mel loss").at_least(0);
  s.option("adversarial_weight", c.adversarial_weight, "of convincing the discriminators").at_least(0);
  s.option("feature_weight", c.feature_weight, "of matching the discriminators' features").at_least(0);
  s.section("scales", c.scales, "multi-scale mel loss");
}

void describe(Schema& s, TaskConfig& c) {
  s.section("mel", c.mel, "the frames that become sound");
  s.section("model", c.model, "the vocoder; what follows from its frames is filled in");
  s.option("adversarial", c.adversarial, "with discriminators; false: spectral losses alone, much cheaper");
  s.option("discriminator_scales", c.discriminator_scales, "rates of the multi-scale discriminators")
      .at_least(0);
  s.section("multi_scale", c.multi_scale, "the wave discriminator of every scale");
  s.section("stft", c.stft, "the complex STFT discriminator");
  s.section("loss", c.loss, "weights of the vocoder's losses");
  s.section("generator", c.generator, "how the vocoder moves");
  s.section("discriminator", c.discriminator, "how the discriminators move");
}

VocosGanImpl::VocosGanImpl(const TaskConfig& config) {
  vocoder = register_module("vocoder", Vocos(config.model));
  if (config.adversarial)
    discriminators = register_module("discriminators", Discriminators(discriminator_config(config)));
}

VocosTask::VocosTask(const TaskConfig& config, nlohmann::ordered_json whole_config)
    : config_(config),
      whole_config_(std::move(whole_config)),
      mel_(config.mel),
      scales_loss_(config.loss.scales, config.mel.rate_hz),
      gan_(config) {}

at::Tensor VocosTask::copy(const at::Tensor& wave) {
  at::Tensor frames;
  {
    const at::NoGradGuard no_grad;
    frames = mel_(wave);
  }
  return gan_->vocoder->forward(frames);
}

std::vector<Phase> VocosTask::phases() {
  Phase generator = make_phase("generator", config_.generator);
  generator.groups = {{"vocoder", parameters_of(*gan_->vocoder, "vocoder.")}};
  generator.loss = [this](const Batch& batch, const StepContext&) { return generator_losses(batch["wave"]); };
  if (!config_.adversarial) return {generator};
  Phase discriminator = make_phase("discriminator", config_.discriminator);
  discriminator.groups = {{"discriminators", parameters_of(*gan_->discriminators, "discriminators.")}};
  discriminator.new_batches = false;
  discriminator.loss = [this](const Batch& batch, const StepContext&) {
    return discriminator_losses(batch["wave"]);
  };
  return {generator, discriminator};
}

Losses VocosTask::spectral_losses(const at::Tensor& real, const at::Tensor& fake) {
  const at::Tensor mel = (mel_(real) - mel_(fake)).abs().mean();
  Losses losses{config_.loss.mel_weight * mel, {{"mel", mel.detach()}}};
  if (config_.loss.scales_weight > 0) {
    const at::Tensor scales = scales_loss_(real, fake);
    losses.total = losses.total + config_.loss.scales_weight * scales;
    losses.named.emplace_back("scales", scales.detach());
  }
  return losses;
}

Losses VocosTask::generator_losses(const at::Tensor& wave) {
  const at::Tensor fake = copy(wave), real = as_long_as(wave, fake);
  Losses losses = spectral_losses(real, fake);
  if (!config_.adversarial) return losses;
  const auto judged_real = gan_->discriminators->forward(real.unsqueeze(1));
  const auto judged_fake = gan_->discriminators->forward(fake.unsqueeze(1));
  std::vector<at::Tensor> adversarial, features;
  for (size_t i = 0; i < judged_fake.size(); ++i) {
    adversarial.push_back(hinge_generator_loss(judged_fake[i].logits));
    for (const at::Tensor& distance : feature_distances(judged_real[i], judged_fake[i]))
      features.push_back(distance);
  }
  const at::Tensor convincing = at::stack(adversarial).mean(), matching = at::stack(features).mean();
  losses.total =
      losses.total + config_.loss.adversarial_weight * convincing + config_.loss.feature_weight * matching;
  losses.named.emplace_back("adversarial", convincing.detach());
  losses.named.emplace_back("feature", matching.detach());
  return losses;
}

Losses VocosTask::discriminator_losses(const at::Tensor& wave) {
  RealAndFake pair;
  {
    const at::NoGradGuard no_grad;
    pair.fake = copy(wave);
    pair.real = as_long_as(wave, pair.fake).unsqueeze(1);
    pair.fake = pair.fake.unsqueeze(1);
  }
  Losses losses;
  for (const auto& [name, value] : gan_->discriminators->losses(pair, false)) {
    losses.total = losses.total.defined() ? losses.total + value : value;
    losses.named.emplace_back(name, value.detach());
  }
  return losses;
}

Losses VocosTask::validate(const Batch& batch, const StepContext&) {
  const at::Tensor fake = copy(batch["wave"]), real = as_long_as(batch["wave"], fake);
  Losses losses = spectral_losses(real, fake);
  losses.named.insert(losses.named.begin(), {"loss", losses.total});
  losses.named.emplace_back("mel_distance", mel_distance(real, fake, config_.mel.rate_hz));
  losses.named.emplace_back("stft_distance", stft_distance(real, fake));
  // Segments are chained: one alone may have too little in it that is not silence.
  if (const auto understood = intelligibility(real.flatten(), fake.flatten(), config_.mel.rate_hz)) {
    losses.named.emplace_back("stoi", at::scalar_tensor(understood->stoi));
    losses.named.emplace_back("extended_stoi", at::scalar_tensor(understood->extended));
  }
  return losses;
}

std::map<std::string, double> VocosTask::chance_levels() const {
  std::map<std::string, double> levels;
  if (config_.adversarial)
    for (const std::string& name : gan_->discriminators->names()) levels[name] = kHingeOfGuessing;
  return levels;
}

void VocosTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  const at::Tensor fake = copy(batch["wave"]), real = as_long_as(batch["wave"], fake);
  const auto rate_hz = static_cast<int>(config_.mel.rate_hz);
  for (int64_t i = 0; i < std::min(kSamplesShown, real.size(0)); ++i) {
    const std::string name = sample_name(batch, i);
    writer.original(name, real[i], rate_hz, label == "online");
    writer.audio(name + "_" + label, fake[i], rate_hz);
    writer.spectrogram_pair(name + "_" + label, real[i], fake[i], rate_hz);
  }
}

}  // namespace melete::vocos
