// A small adversarial task for the tests of the training loop: a generator with buffers and random draws, a
// discriminator in two groups, and switches for everything the loop promises.
#pragma once

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "core/base/error.h"
#include "core/base/random.h"
#include "nn/draws.h"
#include "run/checkpoint.h"
#include "run/run_folder.h"
#include "run/sample_writer.h"
#include "train/trainer.h"

namespace melete::toy {

struct GeneratorImpl : torch::nn::Module {
  at::Tensor weight, bias, running, seen;
  bool counting = true;  // whether a forward pass in training moves the buffers
  GeneratorImpl() {
    auto generator = at::detail::createCPUGenerator(11);
    weight = register_parameter("weight", at::randn({4, 4}, generator) * 0.5);
    bias = register_parameter("bias", at::zeros({4}));
    running = register_buffer("running", at::zeros({4}));
    seen = register_buffer("seen", at::zeros({}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (is_training() && counting) {
      at::NoGradGuard guard;
      running.lerp_(x.mean(0), 0.1);
      seen.add_(1);
    }
    return at::tanh(at::matmul(x - running, weight) + bias);
  }
};
TORCH_MODULE(Generator);

struct ModelImpl : torch::nn::Module {
  Generator generator{nullptr};
  torch::nn::Linear judge_a{nullptr}, judge_b{nullptr};
  torch::nn::Dropout asleep{nullptr};  // a module that stays in evaluation mode
  ModelImpl() {
    generator = register_module("generator", Generator());
    judge_a = register_module("judge_a", torch::nn::Linear(4, 1));
    judge_b = register_module("judge_b", torch::nn::Linear(4, 1));
    asleep = register_module("asleep", torch::nn::Dropout());
    asleep->eval();
    at::NoGradGuard guard;
    for (auto& item : named_parameters())
      if (item.key().rfind("judge", 0) == 0)
        item.value().fill_(0.1).add_(at::arange(item.value().numel()).view_as(item.value()) * 0.05);
  }
};
TORCH_MODULE(Model);

struct Settings {
  bool adversarial = true;
  bool draws = true;
  bool buffers = true;
  bool upstream_clip = false;
  bool same_batches = false;
  double clip_norm = 0.5;
  ScheduleConfig schedule = {.warmup_steps = 3, .kind = "cosine"};  // of the generator
};

class ToyTask : public Task {
 public:
  explicit ToyTask(Settings settings = {}) : settings_(settings) {
    net->generator->counting = settings.buffers;
  }

  std::string name() const override { return "toy"; }
  torch::nn::Module& model() override { return *net; }
  nlohmann::ordered_json config() const override { return {{"toy", true}}; }
  std::map<std::string, double> chance_levels() const override { return {{"distance", 1.0}}; }
  bool averaged(const std::string& parameter) const override { return parameter.rfind("judge", 0) != 0; }

  std::vector<Phase> phases() override {
    Phase generator;
    generator.name = "generator";
    generator.groups = {{"generator", named("generator.")}};
    generator.optimiser.learning_rate = 0.01;
    generator.optimiser.weight_decay = 0.01;
    generator.schedule = settings_.schedule;
    generator.clip_norm = settings_.clip_norm;
    if (settings_.upstream_clip)
      for (const auto& [key, tensor] : named("judge")) generator.also_in_norm.push_back(tensor);
    generator.loss = [this](const Batch& batch, const StepContext& context) {
      return generate(batch, context);
    };
    if (!settings_.adversarial) return {generator};
    Phase judge;
    judge.name = "judge";
    judge.groups = {{"a", named("judge_a.")}, {"b", named("judge_b.")}};
    judge.optimiser.learning_rate = 0.02;
    judge.clip_norm = 1;
    judge.new_batches = !settings_.same_batches;
    judge.loss = [this](const Batch& batch, const StepContext& context) {
      return judge_loss(batch, context);
    };
    return {generator, judge};
  }

  Losses validate(const Batch& batch, const StepContext& context) override {
    validation_modes.push_back(net->is_training() || net->generator->is_training() || context.training);
    const at::Tensor distance = at::mse_loss(net->generator->forward(batch["wave"]), batch["wave"]);
    return {distance, {{"distance", distance}}};
  }

  void write_samples(const Batch& batch, const std::string& label, SampleWriter&) override {
    sample_labels.push_back(label);
    sample_values.push_back(net->generator->weight.detach().sum().item<double>());
    sample_batches.push_back(batch.number);
    if (fail_samples) fail("[toy] the sample cannot be written");
  }

  void save_state(TensorMap& tensors) const override {
    tensors["calls"] = at::scalar_tensor(calls, at::kLong);
  }
  void load_state(const TensorMap& tensors) override { calls = tensors.at("calls").item<int64_t>(); }

  NamedTensors named(const std::string& prefix) {
    NamedTensors found;
    for (const auto& item : net->named_parameters())
      if (item.key().rfind(prefix, 0) == 0) found.emplace_back(item.key(), item.value());
    return found;
  }

  Model net;
  int64_t calls = 0;
  bool fail_samples = false;
  std::vector<bool> validation_modes;
  std::vector<std::string> sample_labels;
  std::vector<double> sample_values;
  std::vector<int64_t> sample_batches;
  std::function<void(const std::string& phase, const Batch&, const StepContext&)> watch;
  std::function<double(const StepContext&)> poison;  // added to the generator's loss

 private:
  at::Tensor dropped(const at::Tensor& x, const StepContext& context) {
    if (!settings_.draws || !context.training) return x;
    return x * (context.draws->uniform("drop", x.sizes()) > 0.2).to(at::kFloat) +
           0.01 * context.draws->normal("noise", x.sizes());
  }

  Losses generate(const Batch& batch, const StepContext& context) {
    if (watch) watch("generator", batch, context);
    ++calls;
    const at::Tensor made = net->generator->forward(dropped(batch["wave"], context));
    const at::Tensor distance = at::mse_loss(made, batch["wave"]);
    at::Tensor total = distance;
    if (settings_.adversarial)
      total = total - 0.1 * (net->judge_a->forward(made) + net->judge_b->forward(made)).mean();
    if (poison) total = total + poison(context) * made.sum();
    return {total, {{"distance", distance.detach()}}};
  }

  Losses judge_loss(const Batch& batch, const StepContext& context) {
    if (watch) watch("judge", batch, context);
    at::Tensor made;
    {
      at::NoGradGuard guard;
      made = net->generator->forward(dropped(batch["wave"], context));
    }
    const auto hinge = [&](torch::nn::Linear& judge) {
      return (at::relu(1 - judge->forward(batch["wave"])) + at::relu(1 + judge->forward(made))).mean();
    };
    const at::Tensor a = hinge(net->judge_a), b = hinge(net->judge_b);
    return {a + b, {{"judge_a", a.detach()}, {"judge_b", b.detach()}}};
  }

  Settings settings_;
};

// Batch n is a function of n; `size` items of 4 numbers.
class ToySource : public BatchSource {
 public:
  explicit ToySource(int64_t size = 3, uint64_t seed = 5) : size_(size), seed_(seed) {}
  Batch batch(int64_t number) override {
    asked.push_back(number);
    std::vector<at::Tensor> items;
    for (int64_t i = 0; i < size_; ++i) {
      auto generator = at::detail::createCPUGenerator(
          random_key(seed_, "toy", {static_cast<uint64_t>(number * size_ + i)}));
      items.push_back(at::randn({4}, generator) * 0.5);
    }
    Batch batch;
    batch.number = number;
    batch.set("wave", at::stack(items));
    if (broken && broken(number)) at::Tensor(batch["wave"]).fill_(std::numeric_limits<float>::quiet_NaN());
    batch.set(Batch::length_column("wave"), at::full({size_}, 4, at::kLong));
    return batch;
  }
  std::vector<int64_t> asked;
  std::function<bool(int64_t)> broken;

 private:
  int64_t size_;
  uint64_t seed_;
};

struct Recorder : Reporter {
  void start(const RunStart& run) override { about = run; }
  void step(const StepReport& report) override {
    steps.push_back(report);
    if (on_step) on_step(report);
  }
  void validation(const ValidationReport& report) override { validations.push_back(report); }
  void saved(const std::string&, int64_t step) override { saves.push_back(step); }
  void warning(const std::string& text) override { warnings.push_back(text); }
  void finished(const std::string& reason) override { reasons.push_back(reason); }
  RunStart about;
  std::vector<StepReport> steps;
  std::vector<ValidationReport> validations;
  std::vector<int64_t> saves;
  std::vector<std::string> warnings, reasons;
  std::function<void(const StepReport&)> on_step;
};

// A folder that is gone when the test is over.
struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "melete-trainer-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr, "[test] no temporary folder");
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string run() const { return path + "/run"; }
};

inline TrainerConfig small_config(int64_t steps) {
  TrainerConfig config;
  config.steps = steps;
  config.accumulate = 2;
  config.seed = 42;
  config.validate_every = 0;
  config.sample_every = 0;
  config.save_every = 0;
  config.ema.update_after_step = 2;
  config.ema.update_every = 3;
  config.ema.beta = 0.9;
  return config;
}

}  // namespace melete::toy
