#include "measure/bench_clock.h"

#include <ctime>

namespace melete {

namespace {

BenchClock chosen_clock = BenchClock::wall;

}  // namespace

void set_bench_clock(BenchClock clock) {
  chosen_clock = clock;
}

double bench_seconds() {
  timespec now{};
  clock_gettime(chosen_clock == BenchClock::cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace melete
