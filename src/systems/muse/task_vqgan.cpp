#include "systems/muse/task_vqgan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "data/batch.h"
#include "losses/adversarial.h"
#include "losses/picture_quality.h"
#include "losses/quality.h"
#include "nn/codebook.h"
#include "run/sample_writer.h"
#include "systems/muse/system.h"

namespace melete::muse {

namespace {

constexpr int64_t kReconstructionsShown = 8;

// Mean over the codebooks. ids [batch, rows, columns] or [..., codebooks]
void add_code_use(NamedTensors& named, const at::Tensor& ids, const VqganVaeImpl& vae) {
  const at::Tensor by_book = vae.config().quantizer.codebooks == 1 ? ids.unsqueeze(-1) : ids;
  std::vector<at::Tensor> perplexities, shares;
  for (int64_t book = 0; book < by_book.size(-1); ++book) {
    const CodeUse use = code_use(by_book.select(-1, book), vae.codebook_size());
    perplexities.push_back(use.perplexity);
    shares.push_back(use.share);
  }
  named.emplace_back("perplexity", at::stack(perplexities).mean());
  named.emplace_back("code_use", at::stack(shares).mean());
}

// The mean colour of a batch, everywhere: what someone answers who sees nothing.
at::Tensor mean_colour(const at::Tensor& pictures) {
  return pictures.mean({0, 2, 3}, true).expand_as(pictures);
}

}  // namespace

VqganTaskConfig::VqganTaskConfig() {
  generator.optimiser.learning_rate = 3e-4;
  generator.optimiser.beta2 = 0.999;
  discriminator.optimiser = generator.optimiser;
}

void describe(Schema& s, VqganTaskConfig& c) {
  s.section("model", c.model, "what is trained");
  s.section("generator", c.generator, "encoder, quantizer and decoder");
  s.section("discriminator", c.discriminator, "the discriminator");
  s.option("gradient_penalty_every", c.gradient_penalty_every, "0: never").at_least(0).unit("steps");
  s.option("own_discriminator_batches", c.own_discriminator_batches,
           "the discriminator trains on batches of its own, as in muse-maskgit-pytorch");
}

Perception perception_of(Vgg16 vgg, bool as_upstream) {
  if (vgg.is_empty()) return {};
  return [vgg, as_upstream](const at::Tensor& pictures, Draws* draws) mutable {
    require(pictures.size(1) == 1 || pictures.size(1) == 3,
            "[vqgan] VGG sees grey or colour pictures, got {} channels; train without it", pictures.size(1));
    vgg->to(pictures.device());
    const at::Tensor colour = pictures.size(1) == 1 ? pictures.expand({-1, 3, -1, -1}) : pictures;
    return as_upstream ? vgg->forward_raw(colour, draws) : vgg->forward(colour);
  };
}

VqganTask::VqganTask(const VqganTaskConfig& config, Vgg16 vgg, nlohmann::ordered_json whole_config)
    : config_(config),
      whole_config_(std::move(whole_config)),
      vqgan_(config.model),
      perceive_(perception_of(std::move(vgg), config.model.as_upstream)) {}

std::string VqganTask::name() const {
  return kVqganTask;
}

std::vector<Phase> VqganTask::phases() {
  Phase generator = make_phase("generator", config_.generator);
  generator.groups = {{"vae", parameters_of(*vqgan_->vae, "vae.")}};
  generator.loss = [this](const Batch& batch, const StepContext& context) {
    return generator_losses(batch, context);
  };
  if (!vqgan_->has_discriminator()) return {generator};

  Phase discriminator = make_phase("discriminator", config_.discriminator);
  discriminator.groups = {{"discriminator", parameters_of(*vqgan_->discriminator, "discriminator.")}};
  discriminator.new_batches = config_.own_discriminator_batches;
  discriminator.loss = [this](const Batch& batch, const StepContext& context) {
    return discriminator_losses(batch, context);
  };
  // muse-maskgit-pytorch clips its generator by a norm that covers the discriminator, stale gradients
  // included.
  if (config_.model.as_upstream) generator.also_in_norm = vqgan_->discriminator->parameters();
  return {generator, discriminator};
}

Losses VqganTask::generator_losses(const Batch& batch, const StepContext& context) {
  VqganImpl::Contest* contest = nullptr;
  if (vqgan_->has_discriminator() && !config_.own_discriminator_batches) {
    // Only the newest contest keeps its judgement, so that accumulation does not hold many graphs at once.
    for (VqganImpl::Contest& older : contests_) older.fake_logits = at::Tensor();
    contests_.resize(static_cast<size_t>(context.micro_batch));
    contest = &contests_.emplace_back();
  }
  const at::Tensor& pictures = batch["picture"];
  const auto result = vqgan_->generator_losses(pictures, perceive_, context.draws, contest);
  Losses losses{result.total, result.named};
  losses.chance = {{"reconstruction", vqgan_->reconstruction_loss(pictures, mean_colour(pictures))}};
  add_code_use(losses.named, result.output.ids, *vqgan_->vae);
  return losses;
}

Losses VqganTask::discriminator_losses(const Batch& batch, const StepContext& context) {
  const int64_t every = config_.gradient_penalty_every;
  // muse-maskgit-pytorch's interval is asked for and not obeyed; and its quantizer moves here a second time.
  const bool as_upstream = config_.model.as_upstream;
  const bool penalty = as_upstream || (every > 0 && context.step % every == 0);
  const VqganImpl::Contest contest =
      config_.own_discriminator_batches
          ? vqgan_->new_contest(batch["picture"], context.draws, as_upstream)
          : std::exchange(contests_.at(static_cast<size_t>(context.micro_batch)), {});
  const auto result = vqgan_->discriminator_losses(contest, penalty);
  return {result.total, result.named};
}

Losses VqganTask::validate(const Batch& batch, const StepContext& context) {
  const at::Tensor& real = batch["picture"];
  const auto result = vqgan_->generator_losses(real, perceive_, context.draws);
  const at::Tensor fake = result.output.pictures.to(at::kFloat);
  Losses losses{result.total, {{"loss", result.total}}};
  for (const auto& [name, value] : result.named)
    if (name != "auxiliary") losses.named.emplace_back(name, value);  // zero in eval
  losses.named.emplace_back("psnr", psnr(real, fake).mean());
  const at::Tensor guessed = mean_colour(real);
  losses.chance = {{"reconstruction", vqgan_->reconstruction_loss(real, guessed)},
                   {"psnr", psnr(real, guessed).mean()}};
  losses.named.emplace_back("ssim", ssim(real, fake).mean());
  add_code_use(losses.named, result.output.ids, *vqgan_->vae);
  return losses;
}

// Two a row: the picture and its reconstruction.
void VqganTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  const at::Tensor real = batch["picture"].narrow(0, 0, std::min(kReconstructionsShown, batch.items()));
  const at::Tensor fake = vqgan_->vae->forward(real, nullptr, false).pictures.to(at::kFloat);
  writer.picture_pairs("reconstructions_" + label, real, fake);
}

std::map<std::string, double> VqganTask::chance_levels() const {
  const std::string& kind = config_.model.loss.adversarial;
  if (kind == "none") return {};
  const double guessing = kind == "hinge" ? kHingeOfGuessing : kBceOfGuessing;
  return {{"discriminator", guessing}};
}

bool VqganTask::averaged(const std::string& name) const {
  if (config_.model.as_upstream) return true;
  return name.starts_with("vae.") && !of_codebook(name);
}

}  // namespace melete::muse
