#include "systems/soundstream/task.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <limits>
#include <utility>

#include "data/batch.h"
#include "losses/adversarial.h"
#include "losses/intelligibility.h"
#include "losses/quality.h"
#include "nn/codebook.h"
#include "run/sample_writer.h"

namespace melete {

namespace {

constexpr int64_t kSamplesShown = 4;

// Mean over the stages that were in use; with `each`, also of every one of them, counted from 1.
void add_code_use(NamedTensors& named, const Quantized& quantized, const QuantizerImpl& quantizer,
                  bool each = false) {
  std::vector<at::Tensor> perplexities, shares;
  for (int64_t group = 0; group < quantized.codes.size(0); ++group)
    for (int64_t place = 0; place < quantized.stages * quantizer.config().codebooks; ++place) {
      const at::Tensor chosen = quantized.codes[group].select(-1, place);
      const CodeUse use = code_use(chosen, quantizer.codebook_size());
      perplexities.push_back(use.perplexity);
      shares.push_back(use.share);
    }
  named.emplace_back("perplexity", at::stack(perplexities).mean());
  named.emplace_back("code_use", at::stack(shares).mean());
  if (!each) return;
  for (size_t i = 0; i < shares.size(); ++i) {
    named.emplace_back(fmt::format("code_use_{}", i + 1), shares[i]);
    named.emplace_back(fmt::format("perplexity_{}", i + 1), perplexities[i]);
  }
}

}  // namespace

SoundStreamTaskConfig::SoundStreamTaskConfig() {
  generator.schedule.warmup_steps = 1000;
  generator.clip_norm = 0.5;
  discriminator.schedule.warmup_steps = 1000;
}

void describe(Schema& s, SoundStreamTaskConfig& c) {
  s.section("model", c.model, "what is trained");
  s.section("generator", c.generator, "encoder, quantizer and decoder");
  s.section("discriminator", c.discriminator, "all discriminators");
  s.option("gradient_penalty_every", c.gradient_penalty_every, "0: never").at_least(0).unit("steps");
  s.option("own_discriminator_batches", c.own_discriminator_batches,
           "discriminators train on batches of their own, as in audiolm-pytorch");
  s.option("discriminators_from", c.discriminators_from,
           "step from which on discriminators train and judge; never when both of their weights are 0")
      .at_least(0)
      .unit("steps");
}

SoundStreamTask::SoundStreamTask(const SoundStreamTaskConfig& config, nlohmann::ordered_json whole_config)
    : config_(config), whole_config_(std::move(whole_config)), gan_(config.model) {}

std::vector<Phase> SoundStreamTask::phases() {
  auto& discriminators = *gan_->discriminators;
  Phase generator = make_phase("generator", config_.generator);
  generator.groups = {{"codec", parameters_of(*gan_->codec, "codec.")}};
  generator.loss = [this](const Batch& batch, const StepContext& context) {
    return generator_losses(batch, context);
  };

  Phase discriminator = make_phase("discriminator", config_.discriminator);
  discriminator.groups = {{"scales", parameters_of(*discriminators.scales, "discriminators.scales.")},
                          {"stft", parameters_of(*discriminators.stft, "discriminators.stft.")}};
  discriminator.first_step = judged(std::numeric_limits<int64_t>::max())
                                 ? config_.discriminators_from
                                 : std::numeric_limits<int64_t>::max();
  discriminator.new_batches = config_.own_discriminator_batches;
  discriminator.loss = [this](const Batch& batch, const StepContext& context) {
    return discriminator_losses(batch, context);
  };
  // audiolm-pytorch clips its generator by a norm that covers the discriminators, stale gradients included.
  if (config_.model.codec.as_audiolm_pytorch) generator.also_in_norm = discriminators.parameters();
  return {generator, discriminator};
}

bool SoundStreamTask::judged(int64_t step) const {
  const SoundStreamLossConfig& loss = config_.model.loss;
  return step >= config_.discriminators_from && (loss.adversarial_weight > 0 || loss.feature_weight > 0);
}

Losses SoundStreamTask::generator_losses(const Batch& batch, const StepContext& context) {
  RealAndFake* pair = nullptr;
  if (!config_.own_discriminator_batches && judged(context.step)) {
    // Only the newest pair keeps its judgements, so that accumulation does not hold many graphs at once.
    for (RealAndFake& older : pairs_) older.forget_judgements();
    pairs_.resize(static_cast<size_t>(context.micro_batch));
    pair = &pairs_.emplace_back();
  }
  const auto result =
      gan_->generator_losses(batch["wave"], context.draws, {}, {}, pair, judged(context.step));
  Losses losses{result.total, result.named};
  add_code_use(losses.named, result.output.quantized, *gan_->codec->quantizer);
  return losses;
}

Losses SoundStreamTask::discriminator_losses(const Batch& batch, const StepContext& context) {
  const int64_t every = config_.gradient_penalty_every;
  const bool penalty = every > 0 && context.step % every == 0;
  // audiolm-pytorch moves its codebooks here a second time.
  const bool update = config_.model.codec.as_audiolm_pytorch;
  const RealAndFake pair = config_.own_discriminator_batches
                               ? gan_->make_pair(batch["wave"], context.draws, update)
                               : std::exchange(pairs_.at(static_cast<size_t>(context.micro_batch)), {});
  Losses losses;
  for (const auto& [name, value] : gan_->discriminators->losses(pair, penalty)) {
    losses.total = losses.total.defined() ? losses.total + value : value;
    losses.named.emplace_back(name, value.detach());
  }
  return losses;
}

Losses SoundStreamTask::validate(const Batch& batch, const StepContext& context) {
  const auto result =
      gan_->generator_losses(batch["wave"], context.draws, {}, {}, nullptr, judged(context.step));
  const at::Tensor real = gan_->codec->prepare(batch["wave"]).flatten(0, 1);
  const at::Tensor fake = result.output.wave.to(at::kFloat).flatten(0, 1);
  Losses losses{result.total, {{"loss", result.total}}};
  for (const auto& [name, value] : result.named)
    if (name != "commitment") losses.named.emplace_back(name, value);
  const int64_t rate_hz = gan_->codec->config().sample_rate_hz;
  losses.named.emplace_back("mel_distance", mel_distance(real, fake, rate_hz));
  losses.named.emplace_back("fine_mel_distance", fine_mel_distance(real, fake, rate_hz));
  losses.named.emplace_back("si_sdr", si_sdr(real, fake));
  // Segments are chained: one alone may have too little in it that is not silence.
  if (const auto understood = intelligibility(real.flatten(), fake.flatten(), rate_hz)) {
    losses.named.emplace_back("stoi", at::scalar_tensor(understood->stoi));
    losses.named.emplace_back("extended_stoi", at::scalar_tensor(understood->extended));
  }
  if (const auto tones = steady_tones(real.reshape({1, -1}), fake.reshape({1, -1}), rate_hz))
    losses.named.emplace_back("steady_tones", at::scalar_tensor(*tones));
  add_code_use(losses.named, result.output.quantized, *gan_->codec->quantizer, true);
  return losses;
}

void SoundStreamTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  const at::Tensor real = gan_->codec->prepare(batch["wave"]);
  const at::Tensor fake = gan_->codec->forward(real).wave.to(at::kFloat);
  const int rate_hz = static_cast<int>(gan_->codec->config().sample_rate_hz);
  for (int64_t i = 0; i < std::min(kSamplesShown, real.size(0)); ++i) {
    const std::string name = sample_name(batch, i);
    writer.original(name, real[i], rate_hz, label == "online");
    writer.audio(name + "_" + label, fake[i], rate_hz);
    writer.spectrogram_pair(name + "_" + label, real[i], fake[i], rate_hz);
  }
}

std::map<std::string, double> SoundStreamTask::chance_levels() const {
  std::map<std::string, double> levels;
  if (judged(std::numeric_limits<int64_t>::max()))
    for (const std::string& name : gan_->discriminators->names()) levels[name] = kHingeOfGuessing;
  return levels;
}

bool SoundStreamTask::averaged(const std::string& name) const {
  if (config_.model.codec.as_audiolm_pytorch) return true;
  return name.starts_with("codec.") && !of_codebook(name);
}

}  // namespace melete
