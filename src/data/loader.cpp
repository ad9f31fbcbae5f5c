#include "data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/base/random.h"

namespace melete {

void describe(Schema& schema, LoaderConfig& config) {
  schema
      .option("valid_fraction", config.valid_fraction,
              "share that is held out for validation; 0: validation is on the training data")
      .at_least(0)
      .at_most(1);
  schema.option("split_seed", config.split_seed, "what is held out");
  schema.option("workers", config.workers, "threads that prepare batches (0: none, the training thread does)")
      .at_least(0)
      .at_most(1024);
  schema.option("prefetch", config.prefetch, "batches prepared ahead")
      .at_least(1)
      .at_most(4096)
      .unit("batches");
  schema
      .option("pad", config.pad,
              "items of unequal length are padded to the longest or curtailed to the shortest")
      .one_of({"longest", "curtail"});
  schema
      .option("like_length", config.like_length,
              "so many batches at a time are made of items in the order of their length: little padding "
              "(0: any order)")
      .at_least(0)
      .unit("batches");
  schema
      .option("max_failed_share", config.max_failed_share,
              "stop when more than this share of the files tried cannot be read")
      .at_least(0)
      .at_most(1);
}

struct BatchLoader::Impl {
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  std::shared_ptr<Dataset> dataset;
  LoaderConfig config;
  int64_t batch_size = 0;
  uint64_t seed = 0;
  int rank_count = 1;
  int64_t whole = 0, offset = 0;    // items of all ranks in a batch; where ours begin in it
  std::atomic<int64_t> origin = 0;  // item that batch 0 begins with

  std::mutex caller_mutex;  // a second caller would restart what the first one waits for
  std::mutex mutex;
  std::condition_variable work, done;
  std::map<int64_t, std::shared_ptr<Slot>> slots;  // what is being made or waits to be taken
  int64_t next = 0;                                // first number that nobody has begun
  int64_t horizon = 0;                             // numbers below this may be made
  bool stop = false;
  double waited_seconds = 0;
  std::vector<std::thread> workers;

  std::mutex order_mutex;
  std::map<int64_t, Order> orders;  // of the epochs in use

  // An epoch's permutation is a function of (seed, epoch); a few are kept, since neighbouring batches share
  // them.
  Order order(int64_t epoch) {
    const std::lock_guard lock(order_mutex);
    if (const auto found = orders.find(epoch); found != orders.end()) return found->second;
    if (orders.size() >= 8) orders.erase(orders.begin());
    Rng rng(random_key(seed, "order", {static_cast<uint64_t>(epoch)}));
    std::vector<int64_t> permutation = rng.permutation(dataset->size());
    if (config.like_length > 0) permutation = like_lengths(std::move(permutation), rng);
    return orders[epoch] = std::make_shared<const std::vector<int64_t>>(std::move(permutation));
  }

  // Within every pool of so many batches items are sorted by length; then the pool's batches are shuffled, so
  // that short ones do not always come first.
  std::vector<int64_t> like_lengths(std::vector<int64_t> permutation, Rng& rng) const {
    const auto pool = static_cast<size_t>(config.like_length * whole);
    std::vector<int64_t> result;
    for (size_t begin = 0; begin < permutation.size(); begin += pool) {
      const size_t end = std::min(permutation.size(), begin + pool);
      const auto first = permutation.begin() + static_cast<int64_t>(begin);
      const auto last = permutation.begin() + static_cast<int64_t>(end);
      std::stable_sort(first, last,
                       [&](int64_t a, int64_t b) { return dataset->length(a) < dataset->length(b); });
      const int64_t full = static_cast<int64_t>(end - begin) / whole;
      for (const int64_t batch : rng.permutation(full))
        result.insert(result.end(), first + batch * whole, first + (batch + 1) * whole);
      result.insert(result.end(), first + full * whole, last);
    }
    return result;
  }

  int64_t first_position(int64_t number) const { return origin + number * whole + offset; }

  Batch make(int64_t number) {
    std::vector<Item> items;
    for (int64_t i = 0; i < batch_size; ++i) {
      const int64_t position = first_position(number) + i;
      const int64_t epoch = position / dataset->size();
      const int64_t file = (*order(epoch))[static_cast<size_t>(position % dataset->size())];
      items.push_back(dataset->draw(seed, static_cast<uint64_t>(epoch), file));
    }
    Batch batch = collate(items, config.pad == "longest" ? Pad::longest : Pad::curtail);
    batch.number = number;
    return batch;
  }

  void run_worker() {
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [&] { return stop || next < horizon; });
      if (stop) return;
      const int64_t number = next++;
      const auto slot = std::make_shared<Slot>();
      slots[number] = slot;
      lock.unlock();
      Batch batch;
      std::exception_ptr error;
      try {
        batch = make(number);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      // Nobody else holds a slot that was dropped by a restart; filling it is harmless.
      slot->batch = std::move(batch);
      slot->error = error;
      slot->ready = true;
      done.notify_all();
    }
  }

  Batch take(int64_t number) {
    const std::lock_guard one_caller(caller_mutex);
    std::unique_lock lock(mutex);
    if (slots.count(number) == 0) {  // out of order, or the very next: begin here
      slots.clear();
      next = number;
    }
    slots.erase(slots.begin(), slots.lower_bound(number));
    horizon = number + 1 + config.prefetch;
    work.notify_all();
    done.wait(lock, [&] {
      const auto found = slots.find(number);
      return found != slots.end() && found->second->ready;
    });
    const std::shared_ptr<Slot> slot = slots[number];
    slots.erase(number);
    if (slot->error) std::rethrow_exception(slot->error);
    return std::move(slot->batch);
  }
};

BatchLoader::BatchLoader(std::shared_ptr<Dataset> dataset, const LoaderConfig& config, uint64_t seed,
                         const BatchShare& of)
    : impl_(std::make_unique<Impl>()) {
  require(dataset != nullptr && dataset->size() > 0, "[data] expected a collection to load from, got none");
  require(of.batch_size >= 1, "[batch_size] expected 1 or more, got {}", of.batch_size);
  require(of.rank_count >= 1 && of.rank >= 0 && of.rank < of.rank_count,
          "[data] expected a rank in 0..{}, got {}", of.rank_count - 1, of.rank);
  require(!of.split || of.batch_size >= of.rank_count,
          "[batch_size] a whole batch of {} cannot be shared out over {} ranks; try a larger one",
          of.batch_size, of.rank_count);
  const int64_t share = of.batch_size / of.rank_count, left = of.batch_size % of.rank_count;
  impl_->dataset = std::move(dataset);
  impl_->config = config;
  impl_->whole = of.split ? of.batch_size : of.batch_size * of.rank_count;
  impl_->batch_size = of.split ? share + (of.rank < left ? 1 : 0) : of.batch_size;
  impl_->offset = of.split ? of.rank * share + std::min<int64_t>(of.rank, left) : of.rank * of.batch_size;
  impl_->seed = seed;
  impl_->rank_count = of.rank_count;
  for (int64_t i = 0; i < config.workers; ++i) impl_->workers.emplace_back([this] { impl_->run_worker(); });
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->work.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

Batch BatchLoader::batch(int64_t number) {
  require(number >= 0, "[data] expected a batch number of 0 or more, got {}", number);
  const auto start = std::chrono::steady_clock::now();
  struct Clock {
    Impl& impl;
    std::chrono::steady_clock::time_point start;
    ~Clock() {
      const std::lock_guard lock(impl.mutex);
      impl.waited_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  } const clock{*impl_, start};
  return impl_->workers.empty() ? impl_->make(number) : impl_->take(number);
}

double BatchLoader::wait_seconds() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->waited_seconds;
}

int64_t BatchLoader::items_per_batch() const {
  return impl_->whole;
}

double BatchLoader::weight() const {
  return static_cast<double>(impl_->batch_size * impl_->rank_count) / static_cast<double>(impl_->whole);
}

void BatchLoader::start_from(int64_t item) {
  require(item >= 0, "[data] expected an item number of 0 or more, got {}", item);
  const std::lock_guard one_caller(impl_->caller_mutex);
  // What is being made for the old place ends in slots that nobody holds any more; no new one begins.
  const std::lock_guard lock(impl_->mutex);
  impl_->slots.clear();
  impl_->next = impl_->horizon = 0;
  impl_->origin = item;
}

Dataset& BatchLoader::dataset() {
  return *impl_->dataset;
}

int64_t BatchLoader::batches_per_epoch() const {
  return (impl_->dataset->size() + impl_->whole - 1) / impl_->whole;
}

int64_t BatchLoader::epoch_of(int64_t number) const {
  return impl_->first_position(number) / impl_->dataset->size();
}

}  // namespace melete
