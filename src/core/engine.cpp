#include "core/engine.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <omp.h>
#include <sched.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/allocator.h"
#include "core/base/error.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace melete {

namespace {

bool cpu_has(const char* flag) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;)
      if (word == flag) return true;
    return false;
  }
  return false;
}

bool cpu_has_avx512() {
  return cpu_has("avx512f") && cpu_has("avx512vl") && cpu_has("avx512bw") && cpu_has("avx512dq");
}

// The text after "key" on the first line that begins with it.
std::string line_after(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0) return line.substr(key.size());
  return {};
}

int64_t status_bytes(const std::string& key) {
  const std::string text = line_after("/proc/self/status", key);
  return text.empty() ? 0 : std::atoll(text.c_str()) * 1024;
}

// CPUs that cgroups allow, 0 when there is no limit. Version 2 nests: every folder up to the root may limit.
double cgroup_cpus() {
  double limit = 0;
  const auto narrow = [&](double quota, double period) {
    if (quota > 0 && period > 0) limit = limit > 0 ? std::min(limit, quota / period) : quota / period;
  };
  std::string folder = line_after("/proc/self/cgroup", "0::");
  for (bool more = true; more;) {
    std::ifstream file("/sys/fs/cgroup" + folder + "/cpu.max");
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max") narrow(std::atof(quota.c_str()), period);
    more = !folder.empty();
    const size_t slash = folder.find_last_of('/');
    folder = slash == std::string::npos ? "" : folder.substr(0, slash);
  }
  double quota = -1, period = 0;
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period) narrow(quota, period);
  return limit;
}

template <class Function>
Function symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// Sets what is not yet there; true when something was set.
bool set_missing(const char* name, const char* value) {
  if (std::getenv(name)) return false;
  return setenv(name, value, /*overwrite=*/0) == 0;
}

// OpenBLAS looks its kernels up by CPU model and takes 20-year-old ones for a model newer than itself (seen:
// 15 GFLOP/s instead of 75). The core to ask for instead, or nullptr when its own choice uses the CPU's
// vectors.
const char* better_openblas_core() {
  const auto core_name = symbol<char* (*)()>("openblas_get_corename");
  if (!core_name) return nullptr;
  const std::string core = core_name();
  for (const char* old : {"Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Atom", "Core2",
                          "Penryn", "Dunnington", "Nehalem", "Sandybridge", "Athlon", "Opteron",
                          "Opteron_SSE3", "Barcelona", "Nano", "Bobcat", "Generic", "Unknown"})
    if (core == old)
      return cpu_has_avx512() ? "SkylakeX" : cpu_has("avx2") && cpu_has("fma") ? "Haswell" : nullptr;
  return nullptr;
}

// Some virtual machines show AMX and hide how large its tiles are (seen: a Xeon under Firecracker). oneDNN
// then configures tiles of no size, and dies of an illegal instruction at its first bf16 product.
bool amx_without_tiles() {
#ifdef __x86_64__
  constexpr unsigned kTileLeaf = 0x1d;
  unsigned largest_palette = 0, unused = 0;
  if (!cpu_has("amx_tile")) return false;
  return !__get_cpuid_count(kTileLeaf, 0, &largest_palette, &unused, &unused, &unused) ||
         largest_palette == 0;
#else
  return false;
#endif
}

std::string blas_name() {
  if (const auto config = symbol<char* (*)()>("openblas_get_config")) return config();
  if (at::hasMKL()) return "MKL";
  return "unknown";
}

std::string after_colon(const std::string& text) {
  const size_t start = text.find_first_not_of(": \t");
  return start == std::string::npos ? "" : text.substr(start);
}

}  // namespace

void prepare_process(int argc, char** argv) {
  (void)argc;
  bool must_restart = set_missing("OMP_WAIT_POLICY", "passive");
  if (cpu_has_avx512()) must_restart |= set_missing("ATEN_CPU_CAPABILITY", "avx512");
  if (const char* core = better_openblas_core()) must_restart |= set_missing("OPENBLAS_CORETYPE", core);
  if (amx_without_tiles()) must_restart |= set_missing("DNNL_MAX_CPU_ISA", "AVX512_CORE_BF16");
  if (must_restart && !std::getenv("MELETE_PREPARED")) {
    setenv("MELETE_PREPARED", "1", 1);
    // By its real path, so that process lists show the program's name and not "exe".
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length > 0) {
      path[length] = '\0';
      execv(path, argv);
    }
    execv("/proc/self/exe", argv);  // the file was moved or deleted meanwhile
    // Neither worked (no /proc): the run is slower, but right.
  }
  // A file size limit then shows as a failed write, which says what happened, and not as a sudden death.
  std::signal(SIGXFSZ, SIG_IGN);
  install_allocator();
  // Numbers below 1e-38 cost a processor a hundred times a sum, and fresh networks are full of them: they are
  // zero. Threads have this from the one that starts them, so it comes before there are any.
  at::globalContext().setFlushDenormal(true);
  set_threads(0);
}

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                          : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (const double limit = cgroup_cpus(); limit > 0)
    count = std::min(count, static_cast<int>(std::ceil(limit)));
  return std::max(count, 1);
}

void set_threads(int count) {
  require(count >= 0, "[threads] expected 0 (all cores) or more, got {}", count);
  const int threads = count == 0 ? available_threads() : count;
  at::set_num_threads(threads);
  omp_set_num_threads(threads);
  // OpenBLAS with its own pool does not follow LibTorch's setting, and two pools of different size fight. On
  // OpenMP it follows; told a number, 0.3.34 keeps to it inside a parallel loop, too, and waits forever.
  constexpr int kOnOpenMp = 2;
  const auto openblas_kind = symbol<int (*)()>("openblas_get_parallel");
  if (openblas_kind && openblas_kind() == kOnOpenMp) return;
  if (const auto set_openblas = symbol<void (*)(int)>("openblas_set_num_threads")) set_openblas(threads);
}

int thread_count() {
  return at::get_num_threads();
}

int64_t peak_memory_bytes() {
  return status_bytes("VmHWM:");
}

int64_t resident_memory_bytes() {
  return status_bytes("VmRSS:");
}

bool reset_peak_memory() {
  release_cached_memory();
  reset_tensor_memory_peak();
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

EngineInfo engine_info() {
  EngineInfo info;
  info.libtorch_version = TORCH_VERSION;
  info.blas = blas_name();
  const std::string config = at::show_config();
  const auto from_config = [&](const std::string& key) {
    const size_t at = config.find(key);
    if (at == std::string::npos) return std::string();
    return after_colon(config.substr(at + key.size(), config.find('\n', at) - at - key.size()));
  };
  info.capability = from_config("CPU capability usage");
  if (at::hasMKLDNN()) info.onednn = at::get_mkldnn_version();
  if (const auto effective_isa = symbol<int (*)()>("dnnl_get_effective_cpu_isa");
      effective_isa && at::hasMKLDNN()) {
    const int isa = effective_isa();  // bits of dnnl_cpu_isa_t
    info.onednn_says = true;
    info.onednn_avx512 = (isa & 0x20) != 0;
    info.onednn_bf16 = (isa & 0x80) != 0;
    info.onednn_amx = (isa & 0x200) != 0;
  }
  if (const char* policy = std::getenv("OMP_WAIT_POLICY")) info.wait_policy = policy;
  info.allocator = allocator_installed() ? "caching, huge pages" : "system";
  info.cpu = after_colon(line_after("/proc/cpuinfo", "model name"));
  info.avx2 = cpu_has("avx2");
  info.avx512 = cpu_has_avx512();
  info.avx512_bf16 = cpu_has("avx512_bf16");
  info.amx = cpu_has("amx_bf16");
  info.amx_usable = info.amx && !amx_without_tiles();
  info.threads = thread_count();
  info.available = available_threads();
  if (at::hasCUDA()) {
    const int64_t count = static_cast<int64_t>(at::getNumGPUs());
    for (int64_t i = 0; i < count; ++i) info.cuda_devices.push_back(fmt::format("cuda:{}", i));
  }
  return info;
}

}  // namespace melete
