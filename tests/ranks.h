// Several real processes of the program on this machine, which train one small codec.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "data/base/synth_music.h"
#include "real_process.h"
#include "run/checkpoint.h"
#include "run/run_folder.h"

namespace melete {

// Everything that ranks must agree on is in it: discriminators, codebooks placed by k-means that follow and
// revive, quantizer dropout, gradient penalty, an average, epochs that batches do not divide (9 recordings).
inline constexpr const char* kRanksRecipe = R"(
threads = 1
gradient_penalty_every = 0
[model]
discriminator_scales = [1]
[model.codec]
sample_rate_hz = 8000
channels = 4
strides = [2, 4, 4]
channel_multiples = [1, 2, 2]
dim = 16
attention = false
[model.codec.quantizer]
quantizers = 3
codebook_size = 16
[model.multi_scale]
channels = 4
layers = 1
groups = [2]
max_channels = 8
[model.stft]
channels = 2
channel_multiples = [1]
frequency_strides = [2]
time_strides = [2]
n_fft = 64
hop = 32
window = 64
[model.loss.mel]
window_powers = [6, 7]
n_ffts = [128]
mels = [8]
# Small gradients move weights little, so that rounding stays rounding.
[generator.optimiser]
eps = 1e-3
weight_decay = 0.01
[discriminator.optimiser]
eps = 1e-3
[generator.schedule]
warmup_steps = 3
[discriminator.schedule]
warmup_steps = 3
[data]
segment_seconds = 0.1
valid_fraction = 0.2
workers = 1
[train]
save_every = 2
validate_every = 3
validate_batches = 3
sample_every = 0
[train.ema]
beta = 0.9
update_after_step = 2
update_every = 2
[train.dist]
heartbeat_seconds = 0.1
timeout_seconds = 10
connect_seconds = 20
)";

// Largest difference of any tensor of the model, the average, the optimiser or the codebooks.
inline double difference(const std::string& path_a, const std::string& path_b) {
  const Checkpoint a = load_checkpoint(path_a), b = load_checkpoint(path_b);
  double largest = 0;
  std::string where;
  for (const auto& [name, tensor] : a.tensors) {
    if (name.starts_with("trainer.")) continue;
    const auto found = b.tensors.find(name);
    if (found == b.tensors.end() || found->second.sizes() != tensor.sizes()) {
      ADD_FAILURE() << name << " is missing or has another shape";
      continue;
    }
    if (tensor.numel() == 0) continue;
    double here = (tensor.to(at::kDouble) - found->second.to(at::kDouble)).abs().max().item<double>();
    if (std::isnan(here)) here = std::numeric_limits<double>::infinity();
    if (here > largest) {
      largest = here;
      where = name;
    }
  }
  if (largest > 0) std::printf("  largest difference %.2g in %s\n", largest, where.c_str());
  return largest;
}

inline constexpr double kRounding = 2e-5;

// The beginning of a bash script: two network namespaces with a cable between them are two machines, this one
// at 10.77.0.1 (cable veth0) and the one of process $other at 10.77.0.2. For `unshare -rn bash`; says
// "ready".
inline constexpr const char* kTwoMachines = R"(
set -e
ip link add name veth0 type veth peer name veth1
unshare -n sleep 120 &
other=$!
sleep 0.3
ip link set veth1 netns $other
ip addr add 10.77.0.1/24 dev veth0; ip link set veth0 up; ip link set lo up
nsenter -t $other -n sh -c 'ip addr add 10.77.0.2/24 dev veth1; ip link set veth1 up; ip link set lo up'
echo ready
)";

class Ranks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (std::filesystem::temp_directory_path() / "melete-dist-XXXXXX").string();
    shared_ = ::mkdtemp(pattern.data());
    SynthOptions options;
    options.folder = (shared_ / "music").string();
    options.count = 11;
    options.rate_hz = 8000;
    options.seconds = 0.5;
    options.format = "wav";
    synth_music(options);
    std::ofstream(shared_ / "recipe.toml") << kRanksRecipe;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(shared_); }
  void SetUp() override {
    folder_ = shared_ / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }

  static Words words(const std::filesystem::path& out, int64_t steps, const Words& more = {}) {
    Words all = {"train",    "soundstream",
                 "--config", (shared_ / "recipe.toml").string(),
                 "--data",   (shared_ / "music").string(),
                 "--out",    out.string(),
                 "--steps",  std::to_string(steps)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ended run(const Words& all, const Variables& variables = {}) {
    return Process(MELETE_PROGRAM, all, folder_ / "log", variables).wait();
  }
  void run_well(const Words& all) {
    const Ended ended = run(all);
    ASSERT_EQ(ended.code, 0) << ended.output;
  }
  static std::string checkpoint(const std::filesystem::path& out, int64_t step) {
    return (out / "checkpoints" / (step_name(step) + ".safetensors")).string();
  }
  // Made once: `steps` steps of one process, or of two with the same whole batch.
  static std::string reference(int64_t steps, const Words& more, const std::string& name) {
    const std::filesystem::path out = shared_ / ("reference-" + name);
    if (!std::filesystem::exists(out)) {
      const Ended ended = Process(MELETE_PROGRAM, words(out, steps, more), shared_ / "reference-log").wait();
      require(ended.code == 0, "[test] the reference run failed: {}", ended.output);
    }
    return checkpoint(out, steps);
  }
  static std::string one_process() { return reference(6, {"--batch_size", "8"}, "one"); }
  static std::string two_processes() { return reference(6, {"--batch_size", "4", "--procs", "2"}, "two"); }
  // The last row of that kind in metrics.jsonl.
  static nlohmann::json last_row(const std::filesystem::path& out, const std::string& kind) {
    nlohmann::json found;
    std::ifstream in(out / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      auto row = nlohmann::json::parse(line, nullptr, false);
      if (row.is_object() && row.value("kind", "") == kind) found = row;
    }
    return found;
  }
  static Variables rank_of(int64_t rank, int64_t size, int port, const std::string& address = "127.0.0.1") {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(size)},
            {"MASTER_ADDR", address},
            {"MASTER_PORT", std::to_string(port)}};
  }
  // A process for each rank, with the variables that `place` says.
  static std::vector<Ended> run_ranks(int64_t size, const std::string& program, const Words& all,
                                      const std::filesystem::path& folder,
                                      const std::function<Variables(int64_t rank)>& place) {
    std::vector<std::unique_ptr<Process>> ranks;
    for (int64_t rank = 0; rank < size; ++rank)
      ranks.push_back(
          std::make_unique<Process>(program, all, folder / ("log-" + std::to_string(rank)), place(rank)));
    std::vector<Ended> ended;
    for (const auto& rank : ranks) ended.push_back(rank->wait());
    return ended;
  }
  static int free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    require(::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0,
            "[test] no free port");
    ::close(socket);
    return ntohs(address.sin_port);
  }

  static inline std::filesystem::path shared_;
  std::filesystem::path folder_;
};

}  // namespace melete
