// Recipes whose data are pictures, and their feed.
#pragma once

#include "data/picture_dataset.h"
#include "train/feed.h"

namespace melete {

class PicturesRecipe : public Recipe {
 public:
  PicturesConfig data;

  int64_t height() const { return data.prepare.height; }
  int64_t width() const { return data.prepare.width > 0 ? data.prepare.width : data.prepare.height; }

 protected:
  void describe_data(Schema& schema) override { schema.section("data", data, "how pictures become batches"); }
};

// The pictures of data_from and valid_from. Those of validation are cut in the middle and never mirrored,
// unless nothing is held out.
Feed open_pictures(const PicturesRecipe& recipe, const OpenRequest& request, const FeedOptions& options = {});

// Tokens of pictures and their captions, encoded once: the folders data_from and, where it is given,
// valid_from.
Feed open_picture_tokens(const PicturesRecipe& recipe, const CheckColumns& check, const OpenRequest& request);

}  // namespace melete
