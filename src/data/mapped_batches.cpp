#include "data/mapped_batches.h"

#include <chrono>

namespace melete {

MappedBatches::MappedBatches(std::unique_ptr<BatchSource> source, Map map)
    : source_(std::move(source)), map_(std::move(map)), thread_([this] { run(); }) {}

MappedBatches::~MappedBatches() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MappedBatches::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || wanted_.has_value(); });
    if (stop_) return;
    const int64_t number = *wanted_;
    wanted_.reset();
    busy_ = true;
    lock.unlock();
    Batch batch;
    std::exception_ptr error;
    try {
      batch = source_->batch(number);
      map_(batch);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    batch_ = std::move(batch);
    error_ = error;
    made_ = number;
    busy_ = false;
    changed_.notify_all();
  }
}

// Called before the first batch is asked for, or between two: what was made ahead belongs to the old stream.
void MappedBatches::start_from(int64_t item) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !wanted_.has_value() && !busy_; });
  made_.reset();
  source_->start_from(item);
}

Batch MappedBatches::batch(int64_t number) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (made_ != number) {
    made_.reset();
    wanted_ = number;
    changed_.notify_all();
    changed_.wait(lock, [&] { return made_.has_value(); });
  }
  made_.reset();
  wanted_ = number + 1;  // the next one, while this one is trained on
  changed_.notify_all();
  waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (error_) std::rethrow_exception(error_);
  return std::move(batch_);
}

}  // namespace melete
