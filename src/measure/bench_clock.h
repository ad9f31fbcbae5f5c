// What a benchmark's seconds are: the clock's, or those of the processor that this process was given. Beside
// others on the same cores only the second say what a program costs.
#pragma once

namespace melete {

enum class BenchClock { wall, cpu };

void set_bench_clock(BenchClock clock);
double bench_seconds();  // from some beginning; of all threads together by BenchClock::cpu

}  // namespace melete
