#include "core/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "core/engine.h"

namespace melete {

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)

bool is_on(c10::DeviceType device) {
  return at::autocast::is_autocast_enabled(device);
}

c10::ScalarType type_on(c10::DeviceType device) {
  return at::autocast::get_autocast_dtype(device);
}

void turn(c10::DeviceType device, bool on, c10::ScalarType type) {
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::set_autocast_enabled(device, on);
}

#else

bool is_on(c10::DeviceType device) {
  return device == c10::DeviceType::CPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}

c10::ScalarType type_on(c10::DeviceType device) {
  return device == c10::DeviceType::CPU ? at::autocast::get_autocast_cpu_dtype()
                                        : at::autocast::get_autocast_gpu_dtype();
}

void turn(c10::DeviceType device, bool on, c10::ScalarType type) {
  if (device == c10::DeviceType::CPU) {
    at::autocast::set_autocast_cpu_dtype(type);
    at::autocast::set_cpu_enabled(on);
  } else {
    at::autocast::set_autocast_gpu_dtype(type);
    at::autocast::set_enabled(on);
  }
}

#endif

}  // namespace

c10::ScalarType autocast_type(c10::DeviceType device, c10::ScalarType otherwise) {
  return is_on(device) ? type_on(device) : otherwise;
}

at::Tensor in_float(const at::Tensor& x) {
  return x.to(at::promote_types(x.scalar_type(), at::kFloat));
}

bool bf16_pays(c10::DeviceType device) {
  static const bool has_instructions = has_bf16_instructions(engine_info());
  const char* wish = std::getenv("MELETE_BF16");
  return device != c10::DeviceType::CPU || has_instructions || (wish && wish == std::string_view("always"));
}

AutocastScope::AutocastScope(c10::DeviceType device, bool enabled, c10::ScalarType type) : device_(device) {
  require(device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA,
          "[autocast] expected a CPU or CUDA device, got {}; try --train.precision fp32",
          c10::DeviceTypeName(device, true));
  enabled_before_ = is_on(device);
  type_before_ = type_on(device);
  at::autocast::increment_nesting();
  turn(device_, enabled, enabled ? type : type_before_);
}

AutocastScope::~AutocastScope() {
  turn(device_, enabled_before_, type_before_);
  // The outermost scope drops the short copies of weights: they are stale as soon as the optimiser has moved.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace melete
