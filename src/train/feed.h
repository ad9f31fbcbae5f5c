// Ways of opening data that recipes choose from: any two collections, recordings, folders of tokens, and a
// frozen model in between. Every rank must see the same data; nothing held out means that validation looks at
// the training data, and the run says so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/mapped_batches.h"
#include "data/token_folder.h"
#include "train/recipe.h"

namespace melete {

// One side of a feed.
struct Collection {
  std::shared_ptr<Dataset> items;  // null: nothing
  std::vector<std::string> names;  // of its items; the same on all ranks
  std::string description;         // "52 files, 3.2 minutes"
  double seconds = 0;              // of recordings; 0: not known
};

Feed make_feed(const Recipe& recipe, const LoaderConfig& loader, Collection training, Collection validation,
               const OpenRequest& request);

struct FeedOptions {
  bool with_text = false;  // items that have none are left out, and counted
  // Whether a text says anything to the model; recordings with one that does not are left out by name. None:
  // any text does.
  std::function<bool(const std::string& text)> has_words = {};
};

// The recordings of data_from and valid_from; those that cannot be used are named and counted.
Feed open_recordings(const RecordingsRecipe& recipe, const OpenRequest& request,
                     const FeedOptions& options = {});

// The folder of tokens data_from and, where it is given, valid_from. `check` sees the columns of each and
// throws where they are not what the recipe was made for.
using CheckColumns = std::function<void(const TokenColumns& columns, const std::string& folder)>;
Feed open_tokens(const RecordingsRecipe& recipe, const CheckColumns& check, const OpenRequest& request,
                 const FeedOptions& options = {});

// Every batch of both sides goes through `map`, on a thread of its own.
Feed mapped(Feed feed, const MappedBatches::Map& map);

}  // namespace melete
