#include "measure/flops.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <atomic>
#include <numeric>
#include <string_view>

namespace melete {

namespace {

std::atomic<double> counted{0};

void add(double flops) {
  double before = counted.load();
  while (!counted.compare_exchange_weak(before, before + flops)) {
  }
}

double product(at::IntArrayRef sizes, size_t from) {
  return std::accumulate(sizes.begin() + static_cast<int64_t>(from), sizes.end(), 1.0, std::multiplies<>());
}

// One pass over a convolution: every output value is a product over a kernel. weight [out, in / groups, ...]
double convolution_pass(double output_values, const at::Tensor& weight) {
  return 2 * output_values * product(weight.sizes(), 1);
}

double forward_convolution(c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor &x = inputs[0].toTensor(), &weight = inputs[1].toTensor();
  const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector(),
             dilation = inputs[5].toIntVector();
  double values = static_cast<double>(x.size(0) * weight.size(0));
  for (size_t i = 0; i < stride.size(); ++i) {
    const auto dim = static_cast<int64_t>(i) + 2;
    const int64_t reach = dilation[i] * (weight.size(dim) - 1) + 1;
    values *= static_cast<double>((x.size(dim) + 2 * padding[i] - reach) / stride[i] + 1);
  }
  return convolution_pass(values, weight);
}

double backward_convolution(c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor &gradient = inputs[0].toTensor(), &weight = inputs[2].toTensor();
  const auto wanted = inputs[10].toBoolList();
  const double pass = convolution_pass(static_cast<double>(gradient.numel()), weight);
  return pass * (static_cast<double>(wanted.get(0)) + static_cast<double>(wanted.get(1)));
}

// a [.., rows, inner] times b [.., inner, columns]
double matrix_product(const at::Tensor& a, const at::Tensor& b) {
  return 2 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name == "aten::convolution") add(forward_convolution(function.inputs()));
  if (name == "aten::convolution_backward") add(backward_convolution(function.inputs()));
  if (name == "aten::mm" || name == "aten::bmm")
    add(matrix_product(function.inputs()[0].toTensor(), function.inputs()[1].toTensor()));
  if (name == "aten::addmm")
    add(matrix_product(function.inputs()[1].toTensor(), function.inputs()[2].toTensor()));
  if (name == "melete::product") add(function.inputs()[0].toDouble());  // our kernels say it themselves
  return nullptr;
}

}  // namespace

double count_flops(const std::function<void()>& run) {
  counted = 0;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(observe).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  run();
  at::removeCallback(handle);
  return counted;
}

}  // namespace melete
