#include "cli/doctor_command.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>

#include "cli/arguments.h"
#include "core/autocast.h"
#include "core/base/find_program.h"
#include "core/device.h"
#include "core/selfcheck.h"
#include "measure/machine_peak.h"

namespace melete {

namespace {

void line(const std::string& name, const std::string& value) {
  fmt::print("  {:<36} {}\n", name, value);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> instruction_use(const EngineInfo& info, VectorLevel level) {
  const bool wide_libtorch = info.capability == "AVX512";
  const bool some_libtorch = wide_libtorch || info.capability == "AVX2";
  const auto use = [](bool there, std::vector<std::pair<bool, std::string>> users) -> std::string {
    if (!there) return "this processor has none";
    std::vector<std::string> who;
    for (const auto& [uses, name] : users)
      if (uses) who.push_back(name);
    return who.empty() ? "there, not in use" : fmt::format("in use: {}", fmt::join(who, ", "));
  };
  return {
      {"AVX2", use(info.avx2, {{level >= VectorLevel::v3, "hand-written kernels"},
                               {some_libtorch, "LibTorch"},
                               {info.onednn_says, "oneDNN"}})},
      {"AVX-512", use(info.avx512, {{level >= VectorLevel::v4, "hand-written kernels"},
                                    {wide_libtorch, "LibTorch"},
                                    {info.onednn_avx512, "oneDNN"}})},
      {"AVX-512 bf16", use(info.avx512_bf16, {{level >= VectorLevel::v4, "hand-written kernels"},
                                              {info.onednn_bf16, "oneDNN, for --precision bf16"}})},
      {"AMX", use(info.amx, {{level >= VectorLevel::amx, "hand-written kernels"},
                             {info.onednn_amx, "oneDNN, for --precision bf16"}}) +
                  (info.amx && !info.amx_usable
                       ? " (not by oneDNN: this machine does not say how large its tiles are)"
                       : "")},
  };
}

namespace {

void print_engine(const EngineInfo& info) {
  fmt::print("Engine\n");
  line("LibTorch",
       info.libtorch_version + ", vector kernels " + (info.capability.empty() ? "?" : info.capability));
  line("matrix products", info.blas);
  line("oneDNN", info.onednn.empty() ? "not in this LibTorch build" : info.onednn);
  line("processor", info.cpu.empty() ? "unknown" : info.cpu);
  for (const auto& [name, use] : instruction_use(info, vector_level())) line("  " + name, use);
  line("hand-written kernels", fmt::format("{} (plain: portable, v3: AVX2, v4: AVX-512, amx: that and AMX)",
                                           name_of(vector_level())));
  line("threads", fmt::format("{} in use, {} cores available", info.threads, info.available));
  line("memory of tensors", info.allocator);
  std::string devices = "cpu";
  for (const std::string& device : info.cuda_devices) devices += ", " + device;
  line("devices", devices + (info.cuda_devices.empty() ? " (this LibTorch sees no GPU)" : ""));
  line("device by default", device_named("auto").str());
}

void print_peak() {
  const MachinePeak peak = measure_peak();
  line("peak, fp32", fmt::format("{:.0f} GFLOP/s", peak.sgemm_gflops));
  line("peak, bf16",
       fmt::format(
           "{:.0f} GFLOP/s{}", peak.bf16_gflops,
           !bf16_pays(at::kCPU) ? " (slower than fp32 on this CPU: precision bf16 computes in fp32)" : ""));
  line("memory, read", fmt::format("{:.0f} GB/s", peak.read_gb_per_second));
}

// True when nothing is broken.
bool print_checks() {
  fmt::print("\nSelf-checks\n");
  bool sound = true;
  for (const SelfCheck& check : run_self_checks()) {
    line(check.name, check.verdict());
    sound = sound && check.state != SelfCheck::State::broken;
  }
  return sound;
}

void print_programs() {
  fmt::print("\nLibraries and optional programs\n");
  const auto sndfile = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "sf_version_string"));
  line("audio files", sndfile ? sndfile() : "libsndfile");
  const struct {
    const char *name, *use, *package;
  } programs[] = {
      {"espeak-ng", "makes speech data and phonemes", "espeak-ng"},
      {"ffmpeg", "reads formats that libsndfile does not (m4a, webm, video)", "ffmpeg"},
  };
  for (const auto& program : programs) {
    const std::string path = find_program(program.name);
    line(program.name, path.empty()
                           ? fmt::format("not installed; {} (apt install {})", program.use, program.package)
                           : fmt::format("{}; {}", path, program.use));
  }
  // Only asks whether the module is there: importing it would take seconds.
  const std::string python = find_program("python3");
  const bool has_torch =
      !python.empty() &&
      std::system(
          "python3 -c 'import importlib.util,sys; sys.exit(importlib.util.find_spec(\"torch\") is None)' "
          ">/dev/null 2>&1") == 0;
  line("python3-torch",
       has_torch ? "installed; melete does not need it, only comparisons with the Python systems do"
                 : "not installed; not needed (apt install python3-torch to compare with Python)");
}

}  // namespace

int doctor_command(const std::vector<std::string>& args) {
  int64_t threads = 0;
  Arguments arguments("doctor", "shows the engine, checks its arithmetic and finds optional programs");
  arguments.option("threads", threads, "threads to check with (0: all cores)").at_least(0);
  if (!arguments.parse(args)) return 0;
  set_threads(static_cast<int>(threads));

  print_engine(engine_info());
  print_peak();
  const bool sound = print_checks();
  print_programs();
  fmt::print("\n{}\n",
             sound ? "All is well." : "Something is broken that melete cannot work around: see above.");
  std::fflush(stdout);
  return sound ? 0 : 1;
}

}  // namespace melete
