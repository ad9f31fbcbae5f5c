// The engine under everything: LibTorch, its thread pools and its memory, set up so that a plain machine runs
// at its own speed. The traps this file works around are checked by core/selfcheck.h and shown by `melete
// doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace melete {

// Call first in main(). Some settings (the OpenMP wait policy, the vector width of LibTorch's kernels) are
// read before main() starts, so the program re-executes itself once when they are missing. What the user has
// set stays.
void prepare_process(int argc, char** argv);

// Cores that this process may use: affinity mask and cgroup limit, at least 1.
int available_threads();
// Threads of LibTorch, OpenMP and OpenBLAS alike; 0 means available_threads().
void set_threads(int count);
int thread_count();

int64_t peak_memory_bytes();      // most resident memory so far (VmHWM); 0 where the system does not say
int64_t resident_memory_bytes();  // now (VmRSS)
bool reset_peak_memory();         // starts VmHWM afresh from now; false where the kernel does not allow it

struct EngineInfo {
  std::string libtorch_version;
  std::string blas;         // "OpenBLAS 0.3.21 ...", "MKL", "unknown"
  std::string onednn;       // version, or empty when LibTorch was built without it
  std::string capability;   // the vector kernels LibTorch picked: "AVX512", "AVX2", "DEFAULT"
  std::string wait_policy;  // OMP_WAIT_POLICY in force, or empty
  std::string allocator;    // how large blocks are kept
  std::string cpu;          // model name
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx = false;  // that the processor has
  bool amx_usable = false;  // some virtual machines announce AMX without saying what its tiles are
  // What oneDNN makes use of, where LibTorch has it and it says so: convolutions, and products in bf16.
  bool onednn_says = false, onednn_avx512 = false, onednn_bf16 = false, onednn_amx = false;
  int threads = 1, available = 1;
  std::vector<std::string> cuda_devices;
};
EngineInfo engine_info();

inline bool has_bf16_instructions(const EngineInfo& info) {
  return info.avx512_bf16 || info.amx_usable;
}

}  // namespace melete
