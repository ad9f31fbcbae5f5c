#include "systems/soundstream/gan.h"

#include <fmt/format.h>
#include <torch/autograd.h>

#include "core/autocast.h"
#include "losses/adversarial.h"

namespace melete {

void describe(Schema& s, SoundStreamLossConfig& c) {
  s.option("reconstruction_weight", c.reconstruction_weight, "of the squared error of the wave").at_least(0);
  s.option("mel_weight", c.mel_weight, "of the multi-scale mel loss").at_least(0);
  s.option("adversarial_weight", c.adversarial_weight, "of convincing the discriminators").at_least(0);
  s.option("feature_weight", c.feature_weight, "of matching the discriminators' features").at_least(0);
  s.option("reconstruction", c.reconstruction,
           "squared error of the wave, or the error in dB beside the wave's own power")
      .one_of({"squared", "relative"});
  s.section("mel", c.mel, "multi-scale mel loss");
  s.option("root_spectrum_weight", c.root_spectrum_weight, "of the distance of spectra's roots").at_least(0);
  s.section("root_spectrum", c.root_spectrum, "spectra with roots of magnitudes, phases included");
  s.option("band_shape_weight", c.band_shape_weight,
           "of the distance of third-octave bands' shapes, which is what makes speech understood")
      .at_least(0);
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

std::vector<DiscriminatorsImpl::Seen> DiscriminatorsImpl::inputs_and_logits(const at::Tensor& wave) {
  std::vector<Seen> seen{{wave, stft(wave.flatten(0, 1)).logits}};
  at::Tensor scaled = wave;
  for (size_t i = 0; i < scales->size(); ++i) {
    scaled = downsample(scaled, i);
    seen.push_back({scaled, scales->at<MultiScaleDiscriminatorImpl>(i).forward(scaled).logits});
  }
  return seen;
}

std::vector<std::string> DiscriminatorsImpl::names() const {
  std::vector<std::string> all{"stft"};
  all.insert(all.end(), names_.begin(), names_.end());
  return all;
}

NamedLosses DiscriminatorsImpl::losses(const RealAndFake& pair, bool with_penalty) {
  std::vector<Seen> real, fake;
  if (pair.real_judged.empty() || with_penalty) {
    at::Tensor real_wave = pair.real.detach();
    if (with_penalty) real_wave.requires_grad_();
    real = inputs_and_logits(real_wave);
    fake = inputs_and_logits(pair.fake.detach());
  } else {
    for (const Judgement& judged : pair.real_judged) real.push_back({{}, judged.logits});
    for (const Judgement& judged : pair.fake_judged) fake.push_back({{}, judged.logits});
  }
  NamedLosses losses, penalties;
  for (size_t i = 0; i < real.size(); ++i) {
    const std::string name = i == 0 ? "stft" : names_[i - 1];
    losses.emplace_back(name, hinge_discriminator_loss(fake[i].logits, real[i].logits));
    if (with_penalty)
      penalties.emplace_back(name + "_gradient_penalty",
                             gradient_penalty(real[i].input, losses.back().second));
  }
  losses.insert(losses.end(), penalties.begin(), penalties.end());
  return losses;
}

SoundStreamGanImpl::SoundStreamGanImpl(const SoundStreamGanConfig& config)
    : config_(config),
      mel_loss_(config.loss.mel, config.codec.sample_rate_hz),
      root_spectrum_loss_(config.loss.root_spectrum, config.codec.sample_rate_hz),
      band_shape_loss_(config.codec.sample_rate_hz) {
  codec = register_module("codec", SoundStream(config.codec));
  discriminators = register_module("discriminators", Discriminators(config));
}

SoundStreamGanImpl::JudgedLosses SoundStreamGanImpl::losses_by_judges(
    const std::vector<Judgement>& real, const std::vector<Judgement>& fake) const {
  std::vector<at::Tensor> adversarial, features;
  for (size_t i = 0; i < fake.size(); ++i) {
    adversarial.push_back(hinge_generator_loss(fake[i].logits));
    for (auto& distance : feature_distances(real[i], fake[i])) features.push_back(distance);
  }
  return {at::stack(adversarial).mean(), at::stack(features).mean()};
}

at::Tensor SoundStreamGanImpl::weighted(const JudgedLosses& by_judges) const {
  return config_.loss.adversarial_weight * by_judges.adversarial +
         config_.loss.feature_weight * by_judges.feature;
}

at::Tensor SoundStreamGanImpl::judge_for_both_phases(RealAndFake& pair, const at::Tensor& real,
                                                     const at::Tensor& fake, JudgedLosses& by_judges) {
  pair.real = real.detach();
  pair.fake = fake.detach();
  const at::Tensor judged_fake = fake.detach().requires_grad_();
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : discriminators->parameters())
    if (!weight.requires_grad()) weights.push_back(weight);
  // The graph is recorded with the discriminators' weights in it, for their own phase later; here only the
  // gradient of the fake wave is asked for, so no gradient of a weight is computed.
  for (const at::Tensor& weight : weights) weight.requires_grad_(true);
  pair.real_judged = discriminators->forward(pair.real);
  pair.fake_judged = discriminators->forward(judged_fake);
  for (const at::Tensor& weight : weights) weight.requires_grad_(false);

  by_judges = losses_by_judges(pair.real_judged, pair.fake_judged);
  const at::Tensor total = weighted(by_judges);
  at::Tensor gradient;
  {
    const AutocastScope off(total.device().type(), false);  // see gradient_penalty()
    gradient = torch::autograd::grad({total}, {judged_fake}, {}, /*retain_graph=*/true).front();
  }
  const at::Tensor carrier = (fake * gradient).sum();
  return carrier + (total - carrier).detach();
}

SoundStreamGanImpl::GeneratorLosses SoundStreamGanImpl::generator_losses(
    const at::Tensor& given, Draws* draws, const std::optional<at::Tensor>& target,
    std::optional<bool> denoise, RealAndFake* pair, bool judged) {
  const at::Tensor wave = codec->prepare(given);
  const at::Tensor wanted = target ? codec->prepare(*target) : wave;
  // audiolm-pytorch compares spectra and features with its noisy input even when it learns to denoise.
  const at::Tensor& real = config_.codec.as_audiolm_pytorch ? wave : wanted;

  GeneratorLosses result;
  result.output = codec->forward(wave, draws, true, denoise);
  const at::Tensor fake = result.output.wave.to(at::kFloat);
  const auto& weights = config_.loss;
  const at::Tensor reconstruction = weights.reconstruction == "relative"
                                        ? relative_error_db(wanted.flatten(0, 1), fake.flatten(0, 1))
                                        : at::mse_loss(fake, wanted);
  const at::Tensor mel = weights.mel_weight > 0 ? mel_loss_(real.flatten(0, 1), fake.flatten(0, 1))
                                                : at::zeros({}, fake.options());
  const at::Tensor commitment = result.output.quantized.losses.sum();

  JudgedLosses by_judges;
  at::Tensor against;
  if (!judged) {
    by_judges = {at::zeros({}, fake.options()), at::zeros({}, fake.options())};
    against = at::zeros({}, fake.options());
  } else if (pair != nullptr && at::GradMode::is_enabled()) {
    against = judge_for_both_phases(*pair, real, fake, by_judges);
  } else {
    // In the generator's phase nothing here but `fake` requires gradients, so judging the real wave records
    // nothing.
    by_judges = losses_by_judges(discriminators->forward(real), discriminators->forward(fake));
    against = weighted(by_judges);
  }
  result.total =
      weights.reconstruction_weight * reconstruction + weights.mel_weight * mel + against + commitment;
  result.named = {{"reconstruction", reconstruction.detach()},
                  {"mel", mel.detach()},
                  {"adversarial", by_judges.adversarial.detach()},
                  {"feature", by_judges.feature.detach()},
                  {"commitment", commitment.detach()}};
  if (weights.root_spectrum_weight > 0) {
    const at::Tensor roots = root_spectrum_loss_(real.flatten(0, 1), fake.flatten(0, 1));
    result.total = result.total + weights.root_spectrum_weight * roots;
    result.named.emplace_back("root_spectrum", roots.detach());
  }
  if (weights.band_shape_weight > 0) {
    const at::Tensor shapes = band_shape_loss_(real.flatten(0, 1), fake.flatten(0, 1));
    result.total = result.total + weights.band_shape_weight * shapes;
    result.named.emplace_back("band_shape", shapes.detach());
  }
  return result;
}

RealAndFake SoundStreamGanImpl::make_pair(const at::Tensor& given, Draws* draws, bool update) {
  const at::NoGradGuard no_grad;
  RealAndFake pair;
  pair.real = codec->prepare(given);
  pair.fake = codec->forward(pair.real, draws, update).wave.to(at::kFloat);
  return pair;
}

}  // namespace melete
