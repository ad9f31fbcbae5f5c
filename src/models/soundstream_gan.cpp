#include "models/soundstream_gan.h"

#include <fmt/format.h>

#include "losses/adversarial.h"

namespace melete {

void describe(Schema& s, SoundStreamLossConfig& c) {
  s.option("reconstruction_weight", c.reconstruction_weight, "of the squared error of the wave").at_least(0);
  s.option("mel_weight", c.mel_weight, "of the multi-scale mel loss").at_least(0);
  s.option("adversarial_weight", c.adversarial_weight, "of convincing the discriminators").at_least(0);
  s.option("feature_weight", c.feature_weight, "of matching the discriminators' features").at_least(0);
  s.section("mel", c.mel, "multi-scale mel loss");
}

void describe(Schema& s, SoundStreamGanConfig& c) {
  s.section("codec", c.codec, "encoder, quantizer, decoder");
  s.option("discriminator_scales", c.discriminator_scales, "rates of the multi-scale discriminators")
      .at_least(0);
  s.section("multi_scale", c.multi_scale, "the wave discriminator of every scale");
  s.section("stft", c.stft, "the complex STFT discriminator");
  s.section("loss", c.loss, "weights of the generator's losses");
}

DiscriminatorsImpl::DiscriminatorsImpl(const SoundStreamGanConfig& config) {
  stft = register_module("stft", StftDiscriminator(config.stft));
  for (size_t i = 0; i < config.discriminator_scales.size(); ++i) {
    const double scale = config.discriminator_scales[i];
    names_.push_back(fmt::format("scale:{}", scale));
    factors_.push_back(i == 0 ? 1 : static_cast<int64_t>(config.discriminator_scales[i - 1] / scale));
    scales->push_back(MultiScaleDiscriminator(config.multi_scale, config.codec.input_channels));
  }
  register_module("scales", scales);
}

at::Tensor DiscriminatorsImpl::downsample(const at::Tensor& wave, size_t scale) const {
  const int64_t factor = factors_[scale];
  return scale == 0 ? wave : at::avg_pool1d(wave, {2 * factor}, {factor}, {factor});
}

std::vector<Judgement> DiscriminatorsImpl::forward(const at::Tensor& wave) {
  std::vector<Judgement> judgements{stft(wave.flatten(0, 1))};
  at::Tensor scaled = wave;
  for (size_t i = 0; i < scales->size(); ++i) {
    scaled = downsample(scaled, i);
    judgements.push_back(scales->at<MultiScaleDiscriminatorImpl>(i).forward(scaled));
  }
  return judgements;
}

NamedLosses DiscriminatorsImpl::losses(const at::Tensor& given_real, const at::Tensor& given_fake,
                                       bool with_penalty) {
  at::Tensor real = given_real.detach(), fake = given_fake.detach();
  if (with_penalty) real.requires_grad_();

  NamedLosses losses, penalties;
  const auto judge = [&](const std::string& name, const at::Tensor& real_wave, const at::Tensor& fake_wave,
                         const auto& logits) {
    at::Tensor real_logits, fake_logits;
    if (with_penalty) {  // the gradient of the gradient is wanted for the real wave only
      real_logits = logits(real_wave);
      fake_logits = logits(fake_wave);
    } else {
      const at::Tensor both = logits(at::cat({real_wave, fake_wave}));
      const int64_t half = both.size(0) / 2;
      real_logits = both.narrow(0, 0, half);
      fake_logits = both.narrow(0, half, half);
    }
    const at::Tensor loss = hinge_discriminator_loss(fake_logits, real_logits);
    losses.emplace_back(name, loss);
    if (with_penalty) penalties.emplace_back(name + "_gradient_penalty", gradient_penalty(real_wave, loss));
  };

  judge("stft", real, fake, [&](const at::Tensor& wave) { return stft(wave.flatten(0, 1)).logits; });
  at::Tensor scaled_real = real, scaled_fake = fake;
  for (size_t i = 0; i < scales->size(); ++i) {
    scaled_real = downsample(scaled_real, i);
    scaled_fake = downsample(scaled_fake, i);
    judge(names_[i], scaled_real, scaled_fake, [&](const at::Tensor& wave) {
      return scales->at<MultiScaleDiscriminatorImpl>(i).forward(wave).logits;
    });
  }
  losses.insert(losses.end(), penalties.begin(), penalties.end());
  return losses;
}

SoundStreamGanImpl::SoundStreamGanImpl(const SoundStreamGanConfig& config)
    : config_(config), mel_loss_(config.loss.mel, config.codec.sample_rate_hz) {
  codec = register_module("codec", SoundStream(config.codec));
  discriminators = register_module("discriminators", Discriminators(config));
}

SoundStreamGanImpl::GeneratorLosses SoundStreamGanImpl::generator_losses(
    const at::Tensor& given, Draws* draws, const std::optional<at::Tensor>& target,
    std::optional<bool> denoise) {
  const at::Tensor wave = codec->prepare(given);
  const at::Tensor wanted = target ? codec->prepare(*target) : wave;
  // audiolm-pytorch compares spectra and features with its noisy input even when it learns to denoise.
  const at::Tensor& real = config_.codec.as_audiolm_pytorch ? wave : wanted;

  GeneratorLosses result;
  result.output = codec->forward(wave, draws, true, denoise);
  const at::Tensor fake = result.output.wave.to(at::kFloat);
  const auto& weights = config_.loss;

  const at::Tensor reconstruction = at::mse_loss(fake, wanted);
  const at::Tensor mel = weights.mel_weight > 0 ? mel_loss_(real.flatten(0, 1), fake.flatten(0, 1))
                                                : at::zeros({}, fake.options());

  // In the generator's phase nothing here but `fake` requires gradients, so judging the real wave records
  // nothing.
  const auto real_judged = discriminators->forward(real);
  const auto fake_judged = discriminators->forward(fake);
  std::vector<at::Tensor> adversarial, features;
  for (size_t i = 0; i < fake_judged.size(); ++i) {
    adversarial.push_back(hinge_generator_loss(fake_judged[i].logits));
    for (auto& distance : feature_distances(real_judged[i], fake_judged[i])) features.push_back(distance);
  }
  const at::Tensor adversarial_loss = at::stack(adversarial).mean(),
                   feature_loss = at::stack(features).mean();
  const at::Tensor commitment = result.output.quantized.losses.sum();

  result.total = weights.reconstruction_weight * reconstruction + weights.mel_weight * mel +
                 weights.adversarial_weight * adversarial_loss + weights.feature_weight * feature_loss +
                 commitment;
  result.named = {{"reconstruction", reconstruction.detach()},
                  {"mel", mel.detach()},
                  {"adversarial", adversarial_loss.detach()},
                  {"feature", feature_loss.detach()},
                  {"commitment", commitment.detach()}};
  return result;
}

NamedLosses SoundStreamGanImpl::discriminator_losses(const at::Tensor& given, Draws* draws,
                                                     bool gradient_penalty, bool update) {
  at::Tensor wave, fake;
  {
    const at::NoGradGuard no_grad;
    wave = codec->prepare(given);
    fake = codec->forward(wave, draws, update).wave.to(at::kFloat);
  }
  return discriminators->losses(wave, fake, gradient_penalty);
}

}  // namespace melete
