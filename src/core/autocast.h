// Mixed precision for a scope: convolutions and matrix products in bf16 (or fp16, on a GPU), the rest as
// LibTorch's lists say.
// This is the one place that knows how the calls differ between LibTorch versions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace melete {

// What hand-written operators should compute in: autocast's type where it is on, else `otherwise`.
c10::ScalarType autocast_type(c10::DeviceType device, c10::ScalarType otherwise);

// What norms and softmax compute in, whatever a product under autocast has left: float32, or double as it is.
at::Tensor in_float(const at::Tensor& x);

// Whether a precision of bf16 is computed in bf16 on that device. A processor without bf16 instructions would
// imitate them at a fraction of float32's speed, so it stays in float32 (MELETE_BF16=always: it imitates).
bool bf16_pays(c10::DeviceType device);

class AutocastScope {
 public:
  // Not enabled: autocast is off inside, whatever it was outside.
  AutocastScope(c10::DeviceType device, bool enabled, c10::ScalarType type = c10::ScalarType::BFloat16);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  bool enabled_before_;
  c10::ScalarType type_before_;
};

}  // namespace melete
