// Folders of tokens, and beside them others that training sees, too.
#pragma once

#include "train/feed.h"

namespace melete {

// Another folder of tokens with its share of the items that are trained on; validation never sees it.
struct AlsoTokens {
  std::string folder;  // empty: none
  double share = 0.5;
};
Feed open_tokens(const RecordingsRecipe& recipe, const CheckColumns& check, const OpenRequest& request,
                 const FeedOptions& options, const AlsoTokens& also);

}  // namespace melete
