#include "train/recipe.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace melete {

Schema Recipe::schema() {
  Schema s;
  s.option("data_from", data_from, "folder, manifest or folder of tokens to train on");
  s.option("valid_from", valid_from,
           "the same for validation; empty: a share of the training data is held out");
  s.option("batch_size", batch_size, "items of a micro-batch").at_least(1);
  s.option(
       "epochs", epochs,
       "train.steps follows from it: so many times through the data; 0: as train.steps says, and one epoch "
       "where that is 0, too")
      .at_least(0);
  s.option("threads", threads, "0: all cores").at_least(0);
  describe_data(s);
  s.section("train", train, "the training loop");
  describe_task(s);
  return s;
}

double RecordingsRecipe::item_seconds() const {
  return static_cast<double>(data.segment_length()) / static_cast<double>(data.highest_rate_hz());
}

double RecordingsRecipe::item_bytes() const {
  return 2 * static_cast<double>(data.segment_length());  // 16-bit sound
}

void settle_epochs(Recipe& recipe, Feed& feed) {
  const double epochs = recipe.epochs > 0 ? recipe.epochs : recipe.train.steps == 0 ? 1 : 0;
  if (epochs == 0) return;
  const int64_t batch = feed.training->items_per_batch();
  require(feed.training_items > 0 && batch > 0,
          "[epochs] nobody knows how long one pass through {} is; give train.steps instead",
          recipe.data_from);
  const double items = epochs * static_cast<double>(feed.training_items);
  const double items_per_step = static_cast<double>(batch * recipe.train.accumulate);
  recipe.train.steps = std::max<int64_t>(1, std::llround(std::ceil(items / items_per_step)));
  feed.description.push_back(fmt::format("epochs: {:g}, which are {} steps", epochs, recipe.train.steps));
}

void settle_size(int64_t& setting, int64_t found, const char* name, const std::string& of) {
  if (found == 0) return;  // that model is not at hand
  if (setting == 0) setting = found;
  require(setting == found, "[{}] expected {} as the {} has, got {}; set it to 0 to take what fits", name,
          found, of, setting);
}

void settle_identity(std::string& setting, const std::string& found, const char* what) {
  if (found.empty()) return;
  if (setting.empty()) setting = found;
  require(
      setting == found,
      "[{}] this run was trained with {} and now has {}, whose tokens mean something else; where that has "
      "gone on since, give its checkpoint of then: RUN/checkpoints/step_N.safetensors",
      what, setting, found);
}

}  // namespace melete
