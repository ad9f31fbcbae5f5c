#include "dist/monitor.h"

#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr double kStoreSeconds = 5;  // longest wait for an answer of the store

std::string key_of(int64_t rank) {
  return fmt::format("status/{}", rank);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

std::string place_in_words(const std::string& stage, int64_t step) {
  return step > 0 ? fmt::format("{} of step {}", stage, step) : stage;
}

}  // namespace

struct Monitor::Status {
  bool known = false, stuck = false, done = false;
  int64_t beat = -1, step = 0, collectives = 0, process = 0;
  std::string stage, host, failure;

  std::string where() const { return place_in_words(stage, step); }
};

Monitor::Monitor(StorePointer store, const Place& place, double heartbeat_seconds)
    : store_(std::move(store)), place_(place), heartbeat_seconds_(heartbeat_seconds) {
  publish();
  thread_ = std::thread([this] { run(); });
}

Monitor::~Monitor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Monitor::enter(const std::string& stage, int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    stage_ = stage;
    step_ = step;
    changed_ = true;
  }
  wake_.notify_all();
  inject_fault(stage, step);
}

// Tests only: MELETE_TEST_FAULT=kill:1:reduce:3 ends rank 1 (stop: freezes it, fail: an error) when it enters
// that stage of that step.
void Monitor::inject_fault(const std::string& stage, int64_t step) {
  static const char* const wanted = std::getenv("MELETE_TEST_FAULT");
  if (!wanted) return;
  const std::string text = wanted, here = fmt::format(":{}:{}:{}", place_.rank, stage, step);
  if (!text.ends_with(here)) return;
  // A group that is started again must not meet the same fault: then a file says that it has happened.
  if (const char* mark = std::getenv("MELETE_TEST_FAULT_ONCE")) {
    if (::access(mark, F_OK) == 0) return;
    std::fclose(std::fopen(mark, "w"));
  }
  publish();
  if (text.starts_with("kill")) ::raise(SIGKILL);
  if (text.starts_with("stop")) ::raise(SIGSTOP);
  if (text.starts_with("fail")) fail("[test] rank {} was told to fail", place_.rank);
}

std::string Monitor::where() const {
  const std::lock_guard lock(mutex_);
  return place_in_words(stage_, step_);
}

void Monitor::say_failure(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!stuck_) failure_ = reason;
  }
  within(kStoreSeconds, [this] { publish(); });
}

void Monitor::say_done() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  within(kStoreSeconds, [this] { publish(); });
}

void Monitor::publish() {
  nlohmann::json status;
  {
    const std::lock_guard lock(mutex_);
    status = {{"beat", ++beat_},
              {"stage", stage_},
              {"step", step_},
              {"collectives", collectives_.load()},
              {"process", static_cast<int64_t>(::getpid())},
              {"host", host_name()},
              {"failure", failure_},
              {"stuck", stuck_},
              {"done", done_}};
    changed_ = false;
  }
  const std::string text = status.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  try {
    const std::lock_guard lock(store_mutex_);
    store_->set(key_of(place_.rank), std::vector<uint8_t>(text.begin(), text.end()));
  } catch (const std::exception&) {
    // The store is gone with whoever kept it; the next collective will tell.
  }
}

bool Monitor::within(double seconds, std::function<void()> run) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> ended = done->get_future();
  std::thread([run = std::move(run), done] {
    try {
      run();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  }).detach();
  if (ended.wait_for(milliseconds(seconds)) != std::future_status::ready) {
    store_lost_ = true;
    return false;
  }
  ended.get();
  return true;
}

void Monitor::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    // A change of stage is told soon, but at most a few times a heartbeat.
    wake_.wait_for(lock, milliseconds(heartbeat_seconds_), [&] { return stop_ || changed_; });
    if (stop_) return;
    lock.unlock();
    publish();
    lock.lock();
    wake_.wait_for(lock, milliseconds(heartbeat_seconds_ / 8), [&] { return stop_; });
  }
}

Monitor::Status Monitor::read(int64_t rank) {
  Status status;
  const std::lock_guard lock(store_mutex_);
  if (!store_->check({key_of(rank)})) return status;
  const std::vector<uint8_t> bytes = store_->get(key_of(rank));
  const auto json = nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!json.is_object()) return status;
  status.known = true;
  status.beat = json.value("beat", int64_t{-1});
  status.step = json.value("step", int64_t{0});
  status.collectives = json.value("collectives", int64_t{0});
  status.process = json.value("process", int64_t{0});
  status.stage = json.value("stage", "");
  status.host = json.value("host", "");
  status.failure = json.value("failure", "");
  status.stuck = json.value("stuck", false);
  status.done = json.value("done", false);
  return status;
}

void Monitor::wait_for_main(const std::string& key, double silence_seconds) {
  using Clock = std::chrono::steady_clock;
  struct Answer {
    bool there = false;
    Status main;
  };
  Clock::time_point heard = Clock::now();
  int64_t beat = -1;
  while (true) {
    const auto answer = std::make_shared<Answer>();  // shared with a thread that may never end
    const bool answered = within(std::max(kStoreSeconds, silence_seconds), [this, key, answer] {
      answer->main = read(0);
      const std::lock_guard lock(store_mutex_);
      answer->there = store_->check({key});
    });
    if (!answered) throw std::runtime_error("the group's store gives no answer");
    if (answer->there) return;
    if (answer->main.beat != beat) heard = Clock::now();
    beat = answer->main.beat;
    const bool silent = Clock::now() - heard > milliseconds(silence_seconds);
    if (silent || answer->main.done || !answer->main.failure.empty())
      throw std::runtime_error("nothing more is heard of rank 0");
    std::this_thread::sleep_for(milliseconds(std::min(heartbeat_seconds_ / 4, 0.25)));
  }
}

std::string Monitor::find_culprits() {
  {
    const std::lock_guard lock(mutex_);
    stuck_ = true;
  }
  const int64_t own = collectives_.load();
  // Shared with a thread that may never end.
  const auto seen = std::make_shared<std::array<std::vector<Status>, 2>>();
  const auto ask = [this, seen] {
    publish();
    for (size_t round = 0; round < 2; ++round) {
      for (int64_t rank = 0; rank < place_.size; ++rank) (*seen)[round].push_back(read(rank));
      if (round == 0) std::this_thread::sleep_for(milliseconds(heartbeat_seconds_ * 2.5));
    }
  };
  bool answered = false;
  try {
    answered = within(kStoreSeconds + heartbeat_seconds_ * 2.5, ask);
  } catch (const std::exception&) {
  }
  if (!answered) {
    return place_.store_outside
               ? fmt::format("the launcher, which keeps the group's store at {}:{}, is gone", place_.address,
                             place_.port)
               : fmt::format("rank 0, which keeps the group's store at {}:{}, is gone or out of reach",
                             place_.address, place_.port);
  }
  const std::vector<Status>&before = (*seen)[0], &after = (*seen)[1];
  std::vector<std::string> gone, behind;
  for (int64_t rank = 0; rank < place_.size; ++rank) {
    const Status& now = after[static_cast<size_t>(rank)];
    if (rank == place_.rank) continue;
    const bool silent = now.beat == before[static_cast<size_t>(rank)].beat;
    const std::string who = fmt::format("rank {} (process {} on {})", rank, now.process, now.host);
    if (!now.known)
      gone.push_back(fmt::format("rank {}, which was never heard of", rank));
    else if (!now.failure.empty())
      gone.push_back(fmt::format("{}, which failed in {}: {}", who, now.where(), now.failure));
    else if (now.done)
      gone.push_back(fmt::format("{}, which has ended", who));
    else if (silent && !now.stuck)
      gone.push_back(fmt::format("{}, which died, froze or lost its network in {}", who, now.where()));
    else if (!now.stuck && now.collectives < own)
      behind.push_back(fmt::format("{}, which is still busy in {}", who, now.where()));
  }
  const std::vector<std::string>& named = gone.empty() ? behind : gone;
  return fmt::format("{}", fmt::join(named, "; "));
}

}  // namespace melete
