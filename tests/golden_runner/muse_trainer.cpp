// Whole training steps of VQGanVAETrainer, with every batch and every draw that was recorded.
#include <filesystem>
#include <numeric>

#include "core/base/error.h"
#include "data/pictures.h"
#include "muse.h"
#include "train/ema.h"
#include "train/optimiser.h"

namespace melete::golden::muse_trainer_cases {

namespace {

namespace foreign = muse_maskgit_pytorch;
using muse::Vqgan;

struct TrainerArguments {
  int64_t steps = 0, accumulate = 1, show_every = 100;
  double rate = 3e-4, clip = 0, discriminator_clip = 0;
  bool averages = true;
  EmaConfig average;
};

TrainerArguments arguments_of(const nlohmann::ordered_json& given) {
  // The average's beta and the penalty's interval are never looked at upstream.
  expect_only_trainer(given, {"num_train_steps", "image_size", "lr", "grad_accum_every", "max_grad_norm",
                              "discr_max_grad_norm", "use_ema", "ema_beta", "ema_update_after_step",
                              "ema_update_every", "apply_grad_penalty_every"});
  const auto number = [&](const char* name, double otherwise) {
    return given.contains(name) && !given[name].is_null() ? given[name].get<double>() : otherwise;
  };
  TrainerArguments arguments;
  arguments.steps = given.at("num_train_steps").get<int64_t>();
  arguments.accumulate = static_cast<int64_t>(number("grad_accum_every", 1));
  arguments.show_every = static_cast<int64_t>(number("save_results_every", 100));
  arguments.rate = number("lr", 3e-4);
  arguments.clip = number("max_grad_norm", 0);
  arguments.discriminator_clip = number("discr_max_grad_norm", 0);
  arguments.averages = given.value("use_ema", true);
  arguments.average.beta = 0.9999;
  arguments.average.update_after_step = static_cast<int64_t>(number("ema_update_after_step", 0));
  arguments.average.update_every = static_cast<int64_t>(number("ema_update_every", 1));
  return arguments;
}

NamedTensors parameters_of(const torch::nn::Module& module) {
  NamedTensors named;
  for (const auto& item : module.named_parameters()) named.emplace_back(item.key(), item.value());
  return named;
}

Optimiser adam(const torch::nn::Module& module, double rate) {
  OptimiserConfig config;
  config.learning_rate = rate;
  config.beta2 = 0.999;
  return Optimiser(parameters_of(module), config);
}

void scale_gradients(const std::vector<at::Tensor>& weights, double scale) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& weight : weights)
    if (weight.grad().defined()) weight.grad().mul_(scale);
}

// A gradient that is nothing but rounding: Adam divides by its size, so its sign moves the weight by a whole
// step all the same, on another machine perhaps the other way.
struct Undecided {
  int64_t step = -1;
  std::string parameter;
  int64_t element = 0;
};

class RecordedTraining {
 public:
  // turned: gradients to be taken the other way round.
  RecordedTraining(const Case& c, Checker& check, std::vector<Undecided> turned)
      : c_(c),
        check_(check),
        turned_(std::move(turned)),
        how_(arguments_of(c.config.at("trainer"))),
        gan_(foreign::vqgan_config(c.config.at("vae"))),
        vgg_(vgg_of(c)),
        perceive_(muse::perception_of(vgg_, /*as_upstream=*/true)),
        draws_(vqgan_draws(c)) {
    foreign::load(foreign::vqgan_pairs(*gan_), c.weights);
    // Upstream's norm covers VGG's gradients, which nobody uses or clears.
    if (how_.clip > 0)
      for (const at::Tensor& weight : vgg_->parameters()) weight.set_requires_grad(true);
  }

  void run() {
    Optimiser generator = adam(*gan_->vae, how_.rate), discriminator = adam(*gan_->discriminator, how_.rate);
    Ema average(*gan_, how_.average);
    for (int64_t step = 0; step < how_.steps; ++step) {
      gan_->train();
      generator_pass(step);
      if (how_.clip > 0) clip_generator(step);
      settle(step);
      generator.step(how_.rate);
      generator.clear_gradients();
      discriminator.clear_gradients();
      discriminator_pass(step);
      // As upstream does it, the gradients themselves become smaller: the next step still meets them.
      scale_gradients(gan_->discriminator->parameters(),
                      clip_scale(discriminator.gradient_norm().item<double>(), how_.discriminator_clip));
      discriminator.step(how_.rate);
      if (how_.averages) average.update();
      if (step % how_.show_every == 0) show(step, average);
    }
    for (const NamedPair& pair : foreign::vqgan_pairs(*gan_)) {
      if (pair.form == NamedPair::Form::presence || changes_nothing(pair, gan_->config())) continue;
      check_state(c_, check_, {pair}, "out.final.");
      if (const std::string key = "out.final_ema.ema_model." + pair.theirs; how_.averages && c_.has(key))
        check_.close(key, pair.as_theirs(average.average(pair.ours)), c_.get(key));
    }
  }

  const std::vector<Undecided>& undecided() const { return undecided_; }

 private:
  const at::Tensor& batch(const char* what, int64_t step, int64_t micro) const {
    return c_.in(fmt::format("{}{}.img", what, step * how_.accumulate + micro));
  }
  void compare_loss(const char* what, int64_t step, int64_t micro, const at::Tensor& loss) {
    const std::string name = fmt::format("{}{}", what, step * how_.accumulate + micro);
    if (c_.has("out." + name)) check_.close(name, loss, c_.out(name).reshape({}));
  }

  void generator_pass(int64_t step) {
    for (int64_t micro = 0; micro < how_.accumulate; ++micro) {
      const auto losses = gan_->generator_losses(batch("gen", step, micro), perceive_, &draws_);
      compare_loss("gen", step, micro, losses.total);
      (losses.total / static_cast<double>(how_.accumulate)).backward();
    }
  }

  void discriminator_pass(int64_t step) {
    for (int64_t micro = 0; micro < how_.accumulate; ++micro) {
      const auto contest = gan_->new_contest(batch("discr", step, micro), &draws_, true);
      const auto losses = gan_->discriminator_losses(contest, true);
      compare_loss("discr", step, micro, losses.total);
      (losses.total / static_cast<double>(how_.accumulate)).backward();
    }
  }

  // Notes the generator's gradients that are rounding, and turns those that shall be turned.
  void settle(int64_t step) {
    const at::NoGradGuard no_grad;
    for (const auto& item : gan_->vae->named_parameters()) {
      const at::Tensor gradient = item.value().grad();
      if (!gradient.defined()) continue;
      const at::Tensor size = gradient.abs().flatten();
      const at::Tensor tiny = (size < 1e-6 * size.max()).logical_and(size > 0).nonzero().flatten();
      for (int64_t i = 0; i < tiny.size(0); ++i)
        undecided_.push_back({step, item.key(), tiny[i].item<int64_t>()});
      for (const Undecided& each : turned_)
        if (each.step == step && each.parameter == item.key()) {
          const at::Tensor flat = gradient.view({-1});
          flat[each.element].mul_(-1);
        }
    }
  }

  // By the norm of everything, the discriminator's gradients of the step before and VGG's included.
  void clip_generator(int64_t step) {
    std::vector<at::Tensor> all = gan_->parameters();
    const double without = gradient_norm(all).item<double>();
    for (const at::Tensor& weight : vgg_->parameters()) all.push_back(weight);
    const double norm = gradient_norm(all).item<double>();
    for (const auto& [name, value] : {std::pair{"grad_norm", norm}, {"grad_norm_without_vgg", without}})
      if (const std::string key = fmt::format("{}{}", name, step); c_.has("out." + key))
        check_.close(key, at::scalar_tensor(value, at::kFloat), c_.out(key).to(at::kFloat).reshape({}));
    scale_gradients(all, clip_scale(norm, how_.clip));
  }

  // Held-out pictures beside their reconstructions, first by the average, then by the model itself.
  void show(int64_t step, Ema& average) {
    gan_->eval();
    const int64_t number = step / how_.show_every;
    if (how_.averages) {
      const EmaScope averaged(average);
      reconstruct(fmt::format("valid_ema{}", number), fmt::format("{}.ema.png", step));
    }
    reconstruct(fmt::format("valid{}", number), fmt::format("{}.png", step));
  }

  void reconstruct(const std::string& name, const std::string& file) {
    const at::NoGradGuard no_grad;
    const at::Tensor real = c_.in(name + ".img");
    const at::Tensor fake = gan_->vae->forward(real, &draws_).pictures;
    check_.close(name, fake, c_.out(name));
    const std::string path = c_.folder + "/" + file;
    if (!std::filesystem::exists(path)) return;
    std::vector<at::Tensor> pictures;
    for (int64_t i = 0; i < real.size(0); ++i) {
      pictures.push_back(real[i]);
      pictures.push_back(fake[i]);
    }
    // A pixel may be rounded the other way.
    check_.close(file, picture_tensor(picture_grid(pictures, 2)), picture_tensor(read_png(path)), 1.01 / 255);
  }

  const Case& c_;
  Checker& check_;
  std::vector<Undecided> turned_, undecided_;
  TrainerArguments how_;
  Vqgan gan_;
  Vgg16 vgg_;
  muse::Perception perceive_;
  MuseDraws draws_;
};

// The run as it is; where it comes out otherwise than recorded, with one more of its undecided gradients
// turned at a time, as long as that brings it nearer.
void check_trainer(const Case& c, Checker& check) {
  constexpr size_t kMostTried = 40;
  std::vector<Undecided> turned;
  Checker best;
  RecordedTraining first(c, best, turned);
  first.run();
  std::vector<Undecided> left = first.undecided();
  for (size_t tried = 0; !best.failures().empty() && tried < left.size() && tried < kMostTried; ++tried) {
    std::vector<Undecided> more = turned;
    more.push_back(left[tried]);
    Checker next;
    RecordedTraining(c, next, more).run();
    if (next.worst() >= best.worst()) continue;
    turned = more;
    best = next;
  }
  check = best;
  for (const Undecided& each : turned)
    check.note(fmt::format("the gradient of {}[{}] in step {} is rounding, and was turned round",
                           each.parameter, each.element, each.step));
}

const bool registered = register_case("muse", "VQGanVAETrainer", check_trainer);

}  // namespace

}  // namespace melete::golden::muse_trainer_cases
