#include "data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "core/base/random.h"

namespace melete {

Batch collate(const std::vector<AudioItem>& items, bool pad_to_longest) {
  require(!items.empty(), "[data] expected at least one item in a batch, got none");
  const auto count = static_cast<int64_t>(items.size());
  Batch batch;
  for (const AudioItem& item : items) {
    require(item.waves.size() == items.front().waves.size(), "[data] expected {} rates in every item, got {}",
            items.front().waves.size(), item.waves.size());
    batch.texts.push_back(item.text);
    batch.paths.push_back(item.path);
  }
  for (size_t rate = 0; rate < items.front().waves.size(); ++rate) {
    size_t samples = items.front().waves[rate].size();
    for (const AudioItem& item : items)
      samples = pad_to_longest ? std::max(samples, item.waves[rate].size())
                               : std::min(samples, item.waves[rate].size());
    // Not at::zeros: it would start an OpenMP team in every worker thread.
    at::Tensor wave = at::empty({count, static_cast<int64_t>(samples)}, at::kFloat);
    at::Tensor length = at::empty({count}, at::kLong);
    for (size_t i = 0; i < items.size(); ++i) {
      const std::vector<float>& from = items[i].waves[rate];
      const size_t copied = std::min(from.size(), samples);
      float* const row = wave.data_ptr<float>() + i * samples;
      std::copy_n(from.data(), copied, row);
      std::fill(row + copied, row + samples, 0.0f);
      length.data_ptr<int64_t>()[i] = std::min(items[i].lengths[rate], static_cast<int64_t>(samples));
    }
    batch.waves.push_back(std::move(wave));
    batch.lengths.push_back(std::move(length));
  }
  return batch;
}

struct BatchLoader::Impl {
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  std::shared_ptr<AudioDataset> dataset;
  int64_t batch_size;
  uint64_t seed;
  int rank_count;
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
    return orders[epoch] = std::make_shared<const std::vector<int64_t>>(rng.permutation(dataset->size()));
  }

  int64_t first_position(int64_t number) const { return origin + number * whole + offset; }

  Batch make(int64_t number) {
    std::vector<AudioItem> items;
    for (int64_t i = 0; i < batch_size; ++i) {
      const int64_t position = first_position(number) + i;
      const int64_t epoch = position / dataset->size();
      const int64_t file = (*order(epoch))[static_cast<size_t>(position % dataset->size())];
      items.push_back(dataset->draw(seed, static_cast<uint64_t>(epoch), file));
    }
    Batch batch = collate(items, dataset->config().pad == "longest");
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
    const int64_t prefetch = dataset->config().prefetch;
    if (slots.count(number) == 0) {  // out of order, or the very next: begin here
      slots.clear();
      next = number;
    }
    slots.erase(slots.begin(), slots.lower_bound(number));
    horizon = number + 1 + prefetch;
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

BatchLoader::BatchLoader(std::shared_ptr<AudioDataset> dataset, int64_t batch_size, uint64_t seed, int rank,
                         int rank_count, bool split)
    : impl_(std::make_unique<Impl>()) {
  require(dataset != nullptr, "[data] expected a dataset, got none");
  require(batch_size >= 1, "[batch_size] expected 1 or more, got {}", batch_size);
  require(rank_count >= 1 && rank >= 0 && rank < rank_count, "[data] expected a rank in 0..{}, got {}",
          rank_count - 1, rank);
  impl_->dataset = std::move(dataset);
  require(!split || batch_size >= rank_count,
          "[batch_size] a whole batch of {} cannot be shared out over {} ranks; try a larger one", batch_size,
          rank_count);
  const int64_t share = batch_size / rank_count, left = batch_size % rank_count;
  impl_->whole = split ? batch_size : batch_size * rank_count;
  impl_->batch_size = split ? share + (rank < left ? 1 : 0) : batch_size;
  impl_->offset = split ? rank * share + std::min<int64_t>(rank, left) : rank * batch_size;
  impl_->seed = seed;
  impl_->rank_count = rank_count;
  for (int64_t i = 0; i < impl_->dataset->config().workers; ++i)
    impl_->workers.emplace_back([this] { impl_->run_worker(); });
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

AudioDataset& BatchLoader::dataset() {
  return *impl_->dataset;
}

int64_t BatchLoader::batches_per_epoch() const {
  return (impl_->dataset->size() + impl_->whole - 1) / impl_->whole;
}

int64_t BatchLoader::epoch_of(int64_t number) const {
  return impl_->first_position(number) / impl_->dataset->size();
}

}  // namespace melete
