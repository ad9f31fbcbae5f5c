// Items -> batches, made ahead of time by worker threads. The position in the data is one integer: batch `n`
// holds items n*B .. n*B+B-1 of an endless stream of epochs, each a permutation of the files.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace melete {

struct Batch {
  std::vector<at::Tensor> waves;    // one a rate: [batch, samples] float32
  std::vector<at::Tensor> lengths;  // one a rate: [batch] int64, samples that come from the recording
  std::vector<std::string> texts, paths;
  // What frozen tokenizers made of the waves, or what token shards hold; undefined where a task needs none.
  at::Tensor semantic;       // int64 [batch, tokens], -1 is padding
  at::Tensor acoustic;       // int64 [batch, frames, quantizers], -1 is padding
  at::Tensor text_features;  // [batch, length, dim], zero rows are padding
  int64_t number = 0;

  at::Tensor wave() const { return waves.front(); }
};

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

// Items of unequal length become one tensor a rate: padded with zeros to the longest, or cut to the shortest.
Batch collate(const std::vector<AudioItem>& items, bool pad_to_longest);

class BatchLoader : public BatchSource {
 public:
  // For rank r of R every batch is split into R parts of `batch_size`, and this loader gives part r: the
  // ranks' batches in a row are the batch of one process with batch_size * R.
  // `split`: batch_size is the whole batch; the first ranks have one item more where it does not divide.
  BatchLoader(std::shared_ptr<AudioDataset> dataset, int64_t batch_size, uint64_t seed, int rank = 0,
              int rank_count = 1, bool split = false);
  ~BatchLoader() override;

  Batch batch(int64_t number) override;
  double wait_seconds() const override;
  int64_t items_per_batch() const override;
  double weight() const override;
  void start_from(int64_t item) override;

  AudioDataset& dataset();
  int64_t batches_per_epoch() const;       // rounded up
  int64_t epoch_of(int64_t number) const;  // the epoch that the batch's first item belongs to

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace melete
