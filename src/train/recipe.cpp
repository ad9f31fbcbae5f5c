#include "train/recipe.h"

namespace melete {

Schema Recipe::schema() {
  Schema s;
  s.option("data_from", data_from, "folder, manifest or folder of tokens to train on");
  s.option("valid_from", valid_from,
           "the same for validation; empty: a share of the training data is held out");
  s.option("batch_size", batch_size, "items of a micro-batch").at_least(1);
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

}  // namespace melete
