// A codec that learns from sounds of your own making: the Dataset is yours, the loop is melete's. It trains,
// validates, writes samples to hear and see, saves, and goes on where it was stopped (Ctrl-C); what it leaves
// behind is a run like any other, for `melete codec`, `melete inspect` and `melete export`.
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <exception>
#include <numbers>

#include "core/base/random.h"
#include "core/engine.h"
#include "data/loader.h"
#include "run/metrics.h"
#include "run/run_folder.h"
#include "systems/system.h"
#include "train/trainer.h"

namespace {

// Your data: here tones that glide from one pitch to another. Files, a database, a simulator: anything will
// do that gives the same item for the same numbers, whichever thread asks for it and whenever.
class Glides : public melete::Dataset {
 public:
  Glides(int64_t count, int64_t rate_hz, double seconds)
      : count_(count), rate_hz_(rate_hz), samples_(std::lround(seconds * static_cast<double>(rate_hz))) {}

  int64_t size() const override { return count_; }

  melete::Item draw(uint64_t seed, uint64_t epoch, int64_t index) override {
    melete::Rng rng(melete::random_key(seed, "glide", {epoch, static_cast<uint64_t>(index)}));
    const double from_hz = rng.uniform(100, 1000), to_hz = rng.uniform(100, 1000);
    at::Tensor wave = at::empty({samples_});
    float* sample = wave.data_ptr<float>();
    double phase = 0;
    for (int64_t i = 0; i < samples_; ++i) {
      const double hz = from_hz + (to_hz - from_hz) * static_cast<double>(i) / static_cast<double>(samples_);
      phase += 2 * std::numbers::pi * hz / static_cast<double>(rate_hz_);
      sample[i] = static_cast<float>(0.3 * std::sin(phase));
    }
    melete::Item item;
    item.add("wave", wave);  // [samples]; the column that the codec's task asks for
    item.words["path"] = "glide_" + std::to_string(index);
    return item;
  }

 private:
  int64_t count_, rate_hz_, samples_;
};

// What the run says, on the terminal.
class Lines : public melete::Reporter {
  void step(const melete::StepReport& report) override {
    std::printf("step %lld of %lld: loss %.4f\n", static_cast<long long>(report.step),
                static_cast<long long>(report.steps_total), report.losses.front().second);
  }
  void validation(const melete::ValidationReport& report) override {
    std::printf("held-out glides, %s weights: loss %.4f\n", report.label.c_str(),
                report.losses.front().second);
  }
  void sample_written(const std::string& path) override {
    std::printf("listen to or look at %s\n", path.c_str());
  }
  void finished(const std::string& reason) override { std::printf("%s\n", reason.c_str()); }
};

std::atomic<bool> stop = false;

void run(const char* recipe_file, const char* out, const char* steps) {
  // Every setting of the model and the loop comes from a recipe, as `melete train soundstream` would read it.
  const std::unique_ptr<melete::Recipe> recipe = melete::make_recipe("soundstream");
  melete::Schema settings = recipe->schema();
  settings.apply_file(recipe_file);
  if (steps) settings.set("train.steps", steps);
  settings.check();
  recipe->settle();
  const auto rate_hz = settings.find("model.codec.sample_rate_hz")->json().get<int64_t>();
  const auto seed = static_cast<uint64_t>(recipe->train.seed);

  // Two collections that never meet, and loaders that make batches of them ahead of time.
  const melete::LoaderConfig loader;
  const melete::BatchShare share{.batch_size = recipe->batch_size};
  melete::BatchLoader training(std::make_shared<Glides>(1000, rate_hz, recipe->item_seconds()), loader, seed,
                               share);
  melete::BatchLoader held_out(std::make_shared<Glides>(16, rate_hz, recipe->item_seconds()), loader,
                               seed + 1, share);

  const bool again = melete::has_run(out);
  melete::RunFolder folder(out, again ? melete::StartMode::resume : melete::StartMode::new_run);
  const std::unique_ptr<melete::Task> task = recipe->make_task();
  Lines lines;
  melete::Reporters reporters;
  reporters.add(lines);
  melete::TrainerParts parts{*task, training, &held_out, &folder, &reporters};
  parts.config = settings.json();
  melete::Trainer trainer(std::move(parts), recipe->train);
  if (again) trainer.resume();
  melete::JsonlReporter metrics(folder.metrics_path());
  reporters.add(metrics);

  const melete::RunResult result = trainer.run(stop);
  if (result.outcome == melete::Outcome::failed) throw std::runtime_error(result.reason);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: own_dataset RECIPE.toml RUN_FOLDER [STEPS]\n");
    return 2;
  }
  melete::prepare_process(argc, argv);  // threads, memory and vector width; may start the program anew once
  std::signal(SIGINT, [](int) { stop = true; });
  try {
    run(argv[1], argv[2], argc == 4 ? argv[3] : nullptr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "own_dataset: %s\n", error.what());
    return 1;
  }
  return 0;
}
