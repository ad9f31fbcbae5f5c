#include "tasks/recipe.h"

#include <fmt/ranges.h>

#include "config/nearest.h"
#include "core/base/error.h"
#include "tasks/soundstream_task.h"
#include "tasks/stage_recipes.h"

namespace melete {

namespace {

class SoundStreamRecipe : public Recipe {
 public:
  SoundStreamRecipe() { data.segment_seconds = 1; }

  std::string name() const override { return "soundstream"; }

  void settle() override {
    const SoundStreamConfig& codec = config_.model.codec;
    int64_t frame = 1;
    for (const int64_t stride : codec.strides) frame *= stride;
    data.rates_hz = {codec.sample_rate_hz};
    data.multiple_of = {frame};
    const int64_t segment = data.segment_length();
    require(segment >= frame,
            "[data] a segment of {} samples is shorter than a frame of {}; set data.segment_seconds", segment,
            frame);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<SoundStreamTask>(config_, schema().json());
  }

 protected:
  void describe_task(Schema& s) override { describe(s, config_); }

 private:
  SoundStreamTaskConfig config_;
};

}  // namespace

Schema Recipe::schema() {
  Schema s;
  s.option("data_from", data_from, "folder of recordings or manifest to train on");
  s.option("valid_from", valid_from,
           "the same for validation; empty: a share of the training data is held out");
  s.option("batch_size", batch_size, "segments of a micro-batch").at_least(1);
  s.option("threads", threads, "0: all cores").at_least(0);
  s.section("data", data, "how recordings become batches");
  s.section("train", train, "the training loop");
  describe_task(s);
  return s;
}

std::vector<std::string> recipe_names() {
  return {"soundstream", "semantic", "coarse", "fine"};
}

std::unique_ptr<Recipe> make_recipe(const std::string& name) {
  if (name == "soundstream") return std::make_unique<SoundStreamRecipe>();
  if (name == "semantic") return make_semantic_recipe();
  if (name == "coarse") return make_coarse_recipe();
  if (name == "fine") return make_fine_recipe();
  throw UsageError(fmt::format("nothing to train is called `{}`; did you mean `{}`? there is: {}", name,
                               nearest_word(name, recipe_names()), fmt::join(recipe_names(), ", ")));
}

}  // namespace melete
