#include "systems/voicebox/task_aligner.h"

#include <algorithm>

#include "config/schema.h"
#include "data/batch.h"
#include "run/sample_writer.h"

namespace melete::voicebox {

namespace {

constexpr int64_t kAlignmentsShown = 2;

AlignerInput aligner_input(const Batch& batch) {
  AlignerInput input;
  input.frames = batch["mel"];
  input.phonemes = batch["phonemes"];
  input.frame_lengths = batch.lengths("mel");
  input.phoneme_lengths = batch.lengths("phonemes");
  return input;
}

// Phonemes upwards, frames to the right, each score a few pixels; the path that was found in white.
Image alignment_picture(const at::Tensor& soft, const at::Tensor& hard) {
  constexpr int64_t kPixels = 3;
  const int64_t frames = soft.size(0), n = soft.size(1);
  Image image(static_cast<int>(frames * kPixels), static_cast<int>(n * kPixels));
  const at::Tensor shares = soft.to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor path = hard.to(at::kCPU).contiguous();
  for (int64_t y = 0; y < n * kPixels; ++y)
    for (int64_t x = 0; x < frames * kPixels; ++x) {
      const int64_t place = (x / kPixels) * n + n - 1 - y / kPixels;
      const bool on_path = path.data_ptr<bool>()[place] && y % kPixels == kPixels / 2;
      const Rgb colour = viridis(shares.data_ptr<float>()[place]);
      const Rgb shown = on_path ? Rgb{255, 255, 255} : colour;
      uint8_t* pixel = image.rgb.data() + 3 * (y * frames * kPixels + x);
      pixel[0] = shown.red, pixel[1] = shown.green, pixel[2] = shown.blue;
    }
  return image;
}

}  // namespace

AlignerTaskConfig::AlignerTaskConfig() {
  phase.optimiser.learning_rate = 1e-3;
  phase.schedule.warmup_steps = 50;
  phase.schedule.kind = "cosine";
  phase.clip_norm = 1;
}

void describe(Schema& s, AlignerTaskConfig& c) {
  s.option("binarisation_weight", c.binarisation_weight, "of the loss that makes the alignment hard")
      .at_least(0);
  s.option("binarisation_from", c.binarisation_from, "step from which it counts").at_least(0);
  s.option("prior_until", c.prior_until, "step up to which the expectation of a diagonal gives way")
      .at_least(0);
  melete::describe(s, c.phase);
}

AlignerTask::AlignerTask(const AlignerConfig& model, const AlignerTaskConfig& config,
                         nlohmann::ordered_json whole_config, at::Tensor lexicon)
    : config_(config), whole_config_(std::move(whole_config)), lexicon_(std::move(lexicon)), model_(model) {}

Losses AlignerTask::losses(const Batch& batch, bool binarised, double prior_share, bool with_chance) {
  const AlignerInput input = aligner_input(batch);
  const Alignment alignment = model_->forward(input, prior_share);
  const at::Tensor forward_sum =
      forward_sum_loss(alignment.scores, input.frame_lengths, input.phoneme_lengths, model_->config().blank);
  const at::Tensor binarisation = binarisation_loss(alignment);
  Losses result{forward_sum,
                {{"forward_sum", forward_sum.detach()}, {"binarisation", binarisation.detach()}}};
  if (binarised) result.total = result.total + config_.binarisation_weight * binarisation;
  if (with_chance || !guessed_.defined()) {
    const at::NoGradGuard no_grad;
    guessed_ = forward_sum_loss(at::zeros_like(alignment.scores), input.frame_lengths, input.phoneme_lengths,
                                model_->config().blank);
  }
  result.chance = {{"forward_sum", guessed_}};
  if (!binarised) result.chance.emplace_back("loss", guessed_);
  return result;
}

std::vector<Phase> AlignerTask::phases() {
  Phase phase = make_phase("aligner", config_.phase);
  phase.groups = {{"aligner", parameters_of(*model_)}};
  phase.loss = [this](const Batch& batch, const StepContext& context) {
    const double left = 1 - static_cast<double>(context.step) /
                                static_cast<double>(std::max<int64_t>(config_.prior_until, 1));
    return losses(batch, context.step >= config_.binarisation_from, std::max(left, 0.0), false);
  };
  return {phase};
}

Losses AlignerTask::validate(const Batch& batch, const StepContext&) {
  Losses result = losses(batch, true, 0, true);
  result.named.insert(result.named.begin(), {"loss", result.total});
  return result;
}

void AlignerTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  const Batch some = batch.rows(0, std::min(kAlignmentsShown, batch.items()));
  const AlignerInput input = aligner_input(some);
  const Alignment alignment = model_->forward(input);
  for (int64_t row = 0; row < some.items(); ++row) {
    const auto frames = input.frame_lengths[row].item<int64_t>();
    const auto count = input.phoneme_lengths[row].item<int64_t>();
    const auto part = [&](const at::Tensor& t) { return t[row].narrow(0, 0, frames).narrow(1, 0, count); };
    writer.picture(sample_name(some, row) + "_" + label,
                   alignment_picture(part(alignment.soft), part(alignment.hard)));
  }
}

}  // namespace melete::voicebox
