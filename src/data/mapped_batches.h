// A frozen model in the way of the data (a tokenizer, a text encoder): every batch of a source goes through a
// function on a thread of its own, one batch ahead of whoever asks.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "data/loader.h"

namespace melete {

class MappedBatches : public BatchSource {
 public:
  using Map = std::function<void(Batch&)>;  // adds columns to the batch

  MappedBatches(std::unique_ptr<BatchSource> source, Map map);
  ~MappedBatches() override;

  Batch batch(int64_t number) override;
  double wait_seconds() const override { return waited_seconds_; }
  int64_t items_per_batch() const override { return source_->items_per_batch(); }
  double weight() const override { return source_->weight(); }
  void start_from(int64_t item) override;

 private:
  void run();

  std::unique_ptr<BatchSource> source_;
  Map map_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<int64_t> wanted_;  // what the thread should make next
  std::optional<int64_t> made_;    // what it has made
  Batch batch_;
  std::exception_ptr error_;
  bool busy_ = false, stop_ = false;
  double waited_seconds_ = 0;
  std::thread thread_;
};

}  // namespace melete
