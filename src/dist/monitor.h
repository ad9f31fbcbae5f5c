// Who is where: every rank writes its stage and step to the group's store a few times a minute, so that one
// that waits in vain can say for whom. A thread of its own and a connection of its own; nothing here slows a
// step.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "dist/backend.h"

namespace melete {

class Monitor {
 public:
  Monitor(StorePointer store, const Place& place, double heartbeat_seconds);
  ~Monitor();

  void enter(const std::string& stage, int64_t step);
  void count_collective() { ++collectives_; }
  void say_failure(const std::string& reason);  // before this rank ends with an error of its own
  void say_done();                              // before it ends well

  // Until the main rank has set `key` in the store, however long that takes. Throws when it has failed or
  // ended, or when nothing was heard of it for so many seconds.
  void wait_for_main(const std::string& key, double silence_seconds);

  // Why a collective failed, in words: which ranks are gone, have failed or are behind. Takes a few
  // heartbeats, since only time tells a dead rank from a busy one. Empty when nothing is wrong with any.
  std::string find_culprits();
  // A store whose machine cannot be reached answers never, not even with an error; then this object must be
  // left to itself.
  bool store_lost() const { return store_lost_; }

  std::string where() const;  // "reduce of step 7"

 private:
  struct Status;
  void publish();
  bool within(double seconds, std::function<void()> run);  // false: still under way
  void run();
  Status read(int64_t rank);
  void inject_fault(const std::string& stage, int64_t step);

  StorePointer store_;
  Place place_;
  double heartbeat_seconds_;
  std::atomic<int64_t> collectives_{0};
  std::atomic<bool> store_lost_{false};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string stage_ = "start", failure_;
  int64_t step_ = 0, beat_ = 0;
  bool stuck_ = false, done_ = false, stop_ = false, changed_ = false;
  std::mutex store_mutex_;
  std::thread thread_;
};

}  // namespace melete
