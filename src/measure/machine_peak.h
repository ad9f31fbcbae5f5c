// What this machine reaches at best: what timings are a share of.
#pragma once

namespace melete {

struct MachinePeak {
  double sgemm_gflops = 0, bf16_gflops = 0;
  double read_gb_per_second = 0;
  int threads = 1;
};
// With the current threads, on 1024-cube matrix products (rounded ones by the kernel that training uses) and
// on reading 64 MB; takes about a second.
MachinePeak measure_peak();

}  // namespace melete
