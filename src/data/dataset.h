// A collection of examples of any kind: recordings, tokens, pictures, pairs.
#pragma once

#include <cstdint>
#include <string>

#include "data/batch.h"

namespace melete {

class Schema;

// How a collection becomes batches, whatever it holds.
struct LoaderConfig {
  double valid_fraction = 0.05;
  int64_t split_seed = 42;
  int64_t workers = 2;
  int64_t prefetch = 4;
  std::string pad = "longest";
  int64_t like_length = 0;  // batches whose items are sorted by length before they are cut; 0: any order
  double max_failed_share = 0.1;
};
void describe(Schema& schema, LoaderConfig& config);

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  // The item that (seed, epoch, index) stands for: a random segment, a random crop. Called from several
  // threads at once.
  virtual Item draw(uint64_t seed, uint64_t epoch, int64_t index) = 0;
  // How long an item is, in any unit; only compared with others of the same collection.
  virtual double length(int64_t /*index*/) const { return 0; }
};

}  // namespace melete
