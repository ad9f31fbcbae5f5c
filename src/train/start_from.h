// A new run that begins with the weights of another: `melete train X --from RUN`. The optimiser, the schedule
// and the step are fresh.
#pragma once

#include <string>
#include <vector>

#include "run/load_weights.h"
#include "train/recipe.h"

namespace melete {

struct StartFrom {
  std::string path;  // run folder, checkpoint, or what `import` and `export` write; empty: from nothing
  int64_t step = 0;  // of a run: the checkpoint of that step; 0: the newest
  std::vector<std::string> parts;  // beginnings of names of weights; empty: all
  bool partly = false;             // names that one of the two lacks are passed over
};

struct StartWeights {
  FoundCheckpoint found;
  std::vector<std::string> parts;
  bool partly;

  // Settings of its model become the recipe's, before flags go on top.
  void apply_settings(const Recipe& recipe, Schema& schema) const;
  // Into the model of a fresh task: averaged weights where there are some. Says what it did.
  std::string load(torch::nn::Module& model) const;
};

StartWeights open_start(const StartFrom& from);

}  // namespace melete
