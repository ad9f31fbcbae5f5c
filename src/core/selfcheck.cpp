#include "core/selfcheck.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <numbers>
#include <set>
#include <thread>

#include "core/allocator.h"
#include "core/base/error.h"
#include "core/engine.h"

namespace melete {

namespace {

using State = SelfCheck::State;

struct Finding {
  State state;
  std::string detail;
};

Finding ok(std::string detail) {
  return {State::ok, std::move(detail)};
}
Finding worked_around(std::string detail) {
  return {State::worked_around, std::move(detail)};
}
Finding broken(std::string detail) {
  return {State::broken, std::move(detail)};
}

// Largest difference relative to the largest magnitude; infinite when anything is not finite.
double error_of(const at::Tensor& got, const at::Tensor& expected) {
  if (!got.sizes().equals(expected.sizes())) return INFINITY;
  const at::Tensor a = got.detach().to(at::kDouble), b = expected.detach().to(at::kDouble);
  if (!a.isfinite().all().item<bool>()) return INFINITY;
  return (a - b).abs().max().item<double>() / std::max(b.abs().max().item<double>(), 1e-12);
}

// Inputs that do not touch LibTorch's global generator: a run's draws must not depend on checks made before
// it.
at::Tensor numbers(at::IntArrayRef shape, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator);
}

at::Tensor gradient(const at::Tensor& output, const at::Tensor& input, const at::Tensor& incoming) {
  return torch::autograd::grad({output}, {input}, {incoming}).front();
}

Finding check_gelu_gradient() {
  double worst = 0;
  for (const int64_t size : {64, 512}) {
    // The incoming gradient is a transposed view, as it is after any rearrangement of dimensions.
    const at::Tensor x = numbers({size, size}, 1).requires_grad_();
    const at::Tensor incoming = numbers({size, size}, 2).t();
    const at::Tensor got = gradient(at::gelu(x), x, incoming);
    const at::Tensor value = x.detach().to(at::kDouble);
    const at::Tensor density = (value * value * -0.5).exp() / std::sqrt(2 * std::numbers::pi);
    const at::Tensor share = at::special_ndtr(value);
    worst = std::max(worst, error_of(got, incoming.to(at::kDouble) * (share + value * density)));
  }
  if (worst < 1e-4) return ok(fmt::format("error {:.1e}", worst));
  return worked_around("melete's own GELU (nn/activation)");
}

Finding check_bf16_transposed_convolution() {
  // As many channels in as out: where "transposed" is ignored, this runs and gives the wrong shape or values.
  const at::Tensor x = numbers({2, 16, 32}, 3), weight = numbers({16, 16, 4}, 4) * 0.1;
  const at::Tensor expected = at::conv_transpose1d(x, weight, {}, 2);
  try {
    const at::Tensor got = at::conv_transpose1d(x.to(at::kBFloat16), weight.to(at::kBFloat16), {}, 2);
    const double error = error_of(got, expected);
    if (error < 0.05) return ok(fmt::format("error {:.1e}", error));
  } catch (const std::exception&) {
  }
  return worked_around("the polyphase form (nn/conv)");
}

Finding check_threads() {
  const int wanted = thread_count();
  std::mutex mutex;
  std::set<std::thread::id> seen;
  at::parallel_for(0, wanted * 4, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  const int used = static_cast<int>(seen.size());
  if (used == wanted) return ok(fmt::format("{} of {} cores", used, available_threads()));
  return broken(
      fmt::format("expected {} threads in at::parallel_for, got {}; build melete with OpenMP", wanted, used));
}

Finding check_allocator() {
  constexpr int64_t kCount = 3 << 20;
  const auto address = [] {
    const at::Tensor block = at::empty({kCount});
    return reinterpret_cast<uintptr_t>(block.data_ptr());
  };
  const uintptr_t first = address(), second = address();
  if (first % 64 != 0 || second % 64 != 0) return broken("tensors are not aligned to 64 bytes");
  if (!allocator_installed())
    return ok("the system's; large blocks may go back to the kernel after every use");
  if (first != second) return broken("a freed block was not used again by the next tensor of its size");
  return ok(fmt::format("caching, {} MB in tensors", tensor_memory().live_bytes >> 20));
}

Finding check_wait_policy() {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  if (!policy)
    return worked_around("nothing in this process: start it with OMP_WAIT_POLICY=passive for speed");
  return ok(policy);
}

Finding check_blas() {
  const at::Tensor a = numbers({130, 257}, 5), b = numbers({257, 70}, 6);
  const double error = error_of(at::mm(a, b), at::mm(a.to(at::kDouble), b.to(at::kDouble)));
  if (!(error < 1e-5)) return broken(fmt::format("a matrix product is off by {:.1e}", error));
  const char* core = std::getenv("OPENBLAS_CORETYPE");
  if (core && std::getenv("MELETE_PREPARED"))
    return worked_around(
        fmt::format("OPENBLAS_CORETYPE={} (OpenBLAS is given the kernels for this CPU)", core));
  return ok(fmt::format("error {:.1e}", error));
}

Finding check_bf16_product() {
  const at::Tensor a = numbers({130, 256}, 11).to(at::kBFloat16),
                   b = numbers({256, 70}, 12).to(at::kBFloat16);
  const double error = error_of(at::mm(a, b).to(at::kDouble), at::mm(a.to(at::kDouble), b.to(at::kDouble)));
  if (!(error < 1e-2)) return broken(fmt::format("a bf16 matrix product is off by {:.1e}", error));
  const char* isa = std::getenv("DNNL_MAX_CPU_ISA");
  if (isa && std::getenv("MELETE_PREPARED"))
    return worked_around(
        fmt::format("DNNL_MAX_CPU_ISA={} (this machine shows AMX and hides its tiles)", isa));
  return ok(fmt::format("error {:.1e}", error));
}

Finding check_fourier() {
  constexpr int64_t kSize = 64, kHop = 16, kFrames = 5;
  const at::Tensor x = numbers({kSize + kHop * (kFrames - 1)}, 7);
  const at::Tensor window = at::hann_window(kSize);
  const at::Tensor got = at::view_as_real(at::stft(x, kSize, kHop, kSize, window, false, true, true));
  // The same by definition, in double: frames times a table of cosines and sines.
  const at::Tensor frames = (x.unfold(0, kSize, kHop) * window).to(at::kDouble);
  const at::Tensor angle = at::outer(at::arange(kSize, at::kDouble), at::arange(kSize / 2 + 1, at::kDouble)) *
                           (2 * std::numbers::pi / kSize);
  const at::Tensor expected = at::stack({frames.mm(angle.cos()).t(), -frames.mm(angle.sin()).t()}, -1);
  const double stft_error = error_of(got, expected);
  const double round_trip = error_of(at::fft_irfft(at::fft_rfft(x), x.size(0)), x);

  const at::Tensor input = x.clone().requires_grad_();
  const auto energy = [&](const at::Tensor& wave) {
    return at::view_as_real(
               at::stft(wave, kSize, kHop, kSize, window.to(wave.scalar_type()), false, true, true))
        .pow(4)
        .sum();
  };
  const at::Tensor slope = gradient(energy(input), input, at::ones({}));
  const at::Tensor direction = numbers(x.sizes(), 8).to(at::kDouble), start = x.to(at::kDouble);
  constexpr double kStep = 1e-5;
  const at::Tensor difference =
      (energy(start + kStep * direction) - energy(start - kStep * direction)) / (2 * kStep);
  const double gradient_error = error_of((slope.to(at::kDouble) * direction).sum(), difference);
  if (stft_error < 1e-5 && round_trip < 1e-5 && gradient_error < 1e-3)
    return ok(fmt::format("error {:.1e}, gradient {:.1e}", stft_error, gradient_error));
  return broken(
      fmt::format("stft is off by {:.1e}, rfft and back by {:.1e}, the gradient by {:.1e}; "
                  "use another LibTorch build",
                  stft_error, round_trip, gradient_error));
}

Finding check_channels_last_convolution() {
  const auto run = [](bool channels_last) {
    const at::Tensor x = numbers({2, 24, 150}, 9).requires_grad_(),
                     weight = (numbers({40, 24, 7}, 10) * 0.1).requires_grad_();
    at::Tensor y;
    using Sizes = at::IntArrayRef;
    if (channels_last) {
      const auto layout = at::MemoryFormat::ChannelsLast;
      const at::Tensor wide = x.unsqueeze(2).contiguous(layout),
                       kernel = weight.unsqueeze(2).contiguous(layout);
      y = at::conv2d(wide, kernel, {}, Sizes{1, 2}, Sizes{0, 0}, Sizes{1, 3}).squeeze(2);
    } else {
      y = at::conv1d(x, weight, {}, Sizes{2}, Sizes{0}, Sizes{3});
    }
    const std::vector<at::Tensor> slopes = torch::autograd::grad({y}, {x, weight}, {numbers(y.sizes(), 11)});
    return std::vector<at::Tensor>{y, slopes[0], slopes[1]};
  };
  const auto plain = run(false), channels_last = run(true);
  double worst = 0;
  for (size_t i = 0; i < plain.size(); ++i) worst = std::max(worst, error_of(channels_last[i], plain[i]));
  if (worst < 1e-4) return ok(fmt::format("error {:.1e}", worst));
  return broken(fmt::format("results or gradients differ by {:.1e}; use another LibTorch build", worst));
}

}  // namespace

std::string SelfCheck::verdict() const {
  switch (state) {
    case State::ok:
      return detail.empty() ? "ok" : "ok (" + detail + ")";
    case State::worked_around:
      return "wrong here: worked around by " + detail;
    case State::broken:
      return "broken: " + detail;
  }
  return {};
}

std::vector<SelfCheck> run_self_checks() {
  const std::vector<std::pair<std::string, Finding (*)()>> checks = {
      {"GELU gradient, strided input", check_gelu_gradient},
      {"bf16 transposed convolution", check_bf16_transposed_convolution},
      {"convolution, channels-last = plain", check_channels_last_convolution},
      {"Fourier transforms", check_fourier},
      {"matrix products", check_blas},
      {"bf16 matrix products", check_bf16_product},
      {"threads in parallel loops", check_threads},
      {"memory of tensors", check_allocator},
      {"wait policy of threads", check_wait_policy},
  };
  std::vector<SelfCheck> results;
  for (const auto& [name, check] : checks) {
    Finding finding;
    try {
      const at::AutoGradMode with_gradient(true);
      finding = check();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      finding = broken(text.substr(0, text.find('\n')));
    }
    results.push_back({name, finding.state, finding.detail});
  }
  return results;
}

}  // namespace melete
