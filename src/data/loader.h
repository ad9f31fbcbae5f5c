// Items -> batches, made ahead of time by worker threads. The position in the data is one integer: batch `n`
// holds items n*B .. n*B+B-1 of an endless stream of epochs, each a permutation of the collection.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace melete {

// Where a training loop gets its batches: each is a pure function of its number.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual Batch batch(int64_t number) = 0;
  virtual double wait_seconds() const { return 0; }  // time that callers have waited for data so far

  // For sources that count the items of an endless stream, so that a run can go on with other batches:
  virtual int64_t items_per_batch() const { return 0; }  // of all ranks together; 0: not counted
  virtual double weight() const { return 1; }            // of this rank's part in a mean over all ranks
  virtual void start_from(int64_t /*item*/) {}           // batch 0 begins with this item
};

// Which items of every batch are whose.
struct BatchShare {
  int64_t batch_size = 1;
  int rank = 0, rank_count = 1;
  // Rank r of R gives part r of batches of batch_size * R: the ranks' batches in a row are the batch of one
  // process with that size. Or, where they are split, batch_size is the whole batch, and the first ranks have
  // one item more where it does not divide.
  bool split = false;
};

class BatchLoader : public BatchSource {
 public:
  BatchLoader(std::shared_ptr<Dataset> dataset, const LoaderConfig& config, uint64_t seed,
              const BatchShare& share);
  ~BatchLoader() override;

  Batch batch(int64_t number) override;
  double wait_seconds() const override;
  int64_t items_per_batch() const override;
  double weight() const override;
  void start_from(int64_t item) override;

  Dataset& dataset();
  int64_t batches_per_epoch() const;       // rounded up
  int64_t epoch_of(int64_t number) const;  // the epoch that the batch's first item belongs to

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace melete
