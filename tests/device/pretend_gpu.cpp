#include "device/pretend_gpu.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <execinfo.h>
#include <torch/library.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "device/gpu_memory.h"

namespace melete::testing {

namespace {

constexpr auto kKey = c10::DispatchKey::CUDA;

std::atomic<int64_t> copies_in{0}, pinned_in{0}, waiting_in{0}, copies_out{0};
std::atomic<bool> showing{false};

void show(const char* what) {
  if (!showing) return;
  std::fprintf(stderr, "pretend GPU: %s\n", what);
  void* frames[24];
  backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
}

void count_wait(const char* what) {
  ++copies_out;
  show(what);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return pretend_gpu(); }
  c10::Device getDevice() const override { return pretend_gpu(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device d) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, d);
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getDefaultStream(d); }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};

// A generator of the device is one of the CPU inside.
struct GpuGenerator final : c10::GeneratorImpl {
  GpuGenerator()
      : c10::GeneratorImpl(pretend_gpu(), c10::DispatchKeySet(kKey)),
        twin(at::detail::createCPUGenerator()) {}
  void set_current_seed(uint64_t seed) override { twin.set_current_seed(seed); }
  uint64_t current_seed() const override { return twin.current_seed(); }
  uint64_t seed() override { return twin.seed(); }
  void set_state(const c10::TensorImpl& state) override { twin.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return twin.unsafeGetGeneratorImpl()->get_state();
  }
#if TORCH_VERSION_MAJOR >= 2
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override {
    return 0;
  }
#endif
  at::Generator twin;

 private:
  GpuGenerator* clone_impl() const override {
    auto* made = new GpuGenerator();
    made->twin = twin.clone();
    return made;
  }
};

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) : generator(c10::make_intrusive<GpuGenerator>()) {}
  bool hasCUDA() const override { return true; }
  // Asked for by versions after 2.6; in others they override nothing.
  virtual bool isBuilt() const { return true; }
  virtual bool isAvailable() const { return true; }
  int getNumGPUs() const override { return 1; }
  std::string showConfig() const override { return "pretend\n"; }
  c10::Allocator* getCUDADeviceAllocator() const override { return &gpu_allocator(); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
#if TORCH_VERSION_MAJOR >= 2
  bool isPinnedPtr(const void* data) const override {
    return is_pinned_memory(data);
  }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex current_device() const override {
    return 0;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<GpuGenerator>();
  }
#else
  bool isPinnedPtr(void* data) const override {
    return is_pinned_memory(data);
  }
  void initCUDA() const override {}
  bool hasPrimaryContext(int64_t) const override {
    return true;
  }
  int64_t current_device() const override {
    return 0;
  }
  const at::Generator& getDefaultCUDAGenerator(c10::DeviceIndex) const override {
    return generator;
  }
#endif
  at::Generator generator;
};

// CPU tensors are refused, as on a GPU; single numbers pass, as on a GPU.
void expect_on_gpu(const c10::OperatorHandle& op, const std::string& argument, const at::Tensor& t,
                   bool number_ok) {
  if (!t.defined() || on_gpu(t) || (number_ok && t.dim() == 0 && t.device().is_cpu())) return;
  TORCH_CHECK(false, "pretend GPU: ", op.schema().operator_name(), " got a ", t.device(), " tensor ",
              t.sizes(), " of ", t.scalar_type(), " as '", argument, "', expected one on ", pretend_gpu());
}

// Operators whose result has a size, or a truth, that only the device knows.
bool waits(const std::string& name) {
  for (const char* known :
       {"aten::nonzero", "aten::masked_select", "aten::_unique", "aten::_unique2", "aten::unique_consecutive",
        "aten::unique_dim", "aten::repeat_interleave", "aten::equal", "aten::bincount"})
    if (name == known) return true;
  return false;
}

bool is_mask(const at::Tensor& t) {
  return t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte);
}

// A GPU knows fp16 everywhere, the CPU has few kernels for it: what is missing is computed in float32 and
// rounded. Arguments are CPU tensors, from `first` on the stack.
void run_cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first) {
  const std::vector<c10::IValue> given(stack->begin() + static_cast<ptrdiff_t>(first), stack->end());
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    return;
  } catch (const c10::Error& error) {
    if (std::string(error.what()).find("'Half'") == std::string::npos) throw;
  }
  stack->resize(first);
  bool all_half = true;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // as given, and its float32
  const auto in_full = [&](const at::Tensor& t, bool is_written) {
    if (!t.defined() || !at::isFloatingType(t.scalar_type())) return t;
    if (t.scalar_type() != at::kHalf) {
      all_half = all_half && t.dim() == 0;
      return t;
    }
    at::Tensor full = t.to(at::kFloat);
    if (is_written) written.emplace_back(t, full);
    return full;
  };
  for (size_t i = 0; i < given.size(); ++i) {
    const auto* const alias = op.schema().arguments()[i].alias_info();
    const bool is_written = alias != nullptr && alias->isWrite();
    if (given[i].isTensor()) {
      stack->emplace_back(in_full(given[i].toTensor(), is_written));
    } else if (given[i].isTensorList()) {
      std::vector<at::Tensor> list = given[i].toTensorVector();
      for (at::Tensor& t : list) t = in_full(t, is_written);
      stack->emplace_back(c10::List<at::Tensor>(list));
    } else {
      stack->push_back(given[i]);
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto& [half, full] : written) half.copy_(full);
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    if (!(*stack)[i].isTensor()) continue;
    const at::Tensor made = (*stack)[i].toTensor();
    if (!made.defined() || made.scalar_type() != at::kFloat || !all_half) continue;
    at::Tensor rounded;
    for (const auto& [half, full] : written)
      if (full.is_same(made)) rounded = half;
    (*stack)[i] = rounded.defined() ? rounded : made.to(at::kHalf);
  }
}

// Every operator: arguments to the host, the CPU's kernel, results back.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  const bool indexing = op.schema().name().find("index") != std::string::npos;
  // One value at the places of a mask is masked_fill.
  const bool fills = op.schema().name().find("index_put") != std::string::npos &&
                     (*stack)[first + 2].toTensor().numel() == 1;
  if (waits(op.schema().name())) count_wait(op.schema().name().c_str());
  Exchange exchange;
  const auto host_of = [&](const std::string& name, const at::Tensor& t, bool number_ok) {
    expect_on_gpu(op, name, t, number_ok);
    if (on_gpu(t)) return exchange.to_host(t);
    if (t.defined()) exchange.keep(t);
    return t;
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    const std::string& name = arguments[i].name();
    if (value.isTensor()) {
      value = host_of(name, value.toTensor(), true);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list = value.toTensorVector();
      for (auto& t : list) t = host_of(name, t, false);
      value = c10::IValue(c10::List<at::Tensor>(list));
    } else if (value.isOptionalTensorList()) {
      auto list = value.toOptionalTensorVector();
      for (auto& t : list) {
        if (!t || !t->defined()) continue;
        if (is_mask(*t) && !fills) count_wait("indexing by a mask");
        if (!indexing)
          expect_on_gpu(op, name, *t, false);  // index() takes the CPU's indices on real devices, too
        if (on_gpu(*t)) t = exchange.to_host(*t);
      }
      value = c10::IValue(c10::List<c10::optional<at::Tensor>>(list));
    } else if (value.isDevice()) {
      if (value.toDevice().is_cuda()) value = c10::Device(c10::kCPU);
    } else if (value.isGenerator()) {
      TORCH_CHECK(value.toGenerator().device().is_cuda(), "pretend GPU: ", op.schema().operator_name(),
                  " got a generator of ", value.toGenerator().device());
      value = static_cast<GpuGenerator*>(value.toGenerator().unsafeGetGeneratorImpl())->twin;
    }
  }
  {
    at::AutoDispatchBelowADInplaceOrView no_autograd;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    run_cpu_kernel(op, stack, first);
  }
  exchange.adopt_resized();
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = exchange.to_gpu(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list = value.toTensorVector();
      for (auto& t : list) t = exchange.to_gpu(t);
      value = c10::IValue(c10::List<at::Tensor>(list));
    }
  }
}

// Operators that are more than their CPU kernel.

at::Tensor empty(at::IntArrayRef size, c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                 c10::optional<at::Device>, c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &gpu_allocator(), c10::DispatchKeySet(kKey),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, c10::optional<at::ScalarType> type,
                         c10::optional<at::Layout>, c10::optional<at::Device>, c10::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &gpu_allocator(), c10::DispatchKeySet(kKey),
                                           c10::dtype_or_default(type));
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool without_waiting) {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (!on_gpu(from)) {
    ++copies_in;
    if (without_waiting && is_pinned_memory(from.storage().data_ptr().get())) ++pinned_in;
    if (!without_waiting) {
      ++waiting_in;
      show("a copy to the device that waits");
    }
  }
  if (!on_gpu(to)) count_wait("a copy to the host");
  Exchange exchange;
  at::Tensor target = on_gpu(to) ? exchange.to_host(to) : to;
  target.copy_(on_gpu(from) ? exchange.to_host(from) : from);
  return to;
}

at::Scalar local_scalar(const at::Tensor& t) {
  count_wait("a number that is read");
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  Exchange exchange;
  return at::_local_scalar_dense(exchange.to_host(t));
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  TORCH_CHECK(storage.device_type() == at::kCUDA, "pretend GPU: set_ to a storage of ", storage.device());
  auto* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (stride.data() != nullptr)
    impl->set_sizes_and_strides(size, stride);
  else
    impl->set_sizes_contiguous(size);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(storage), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

// LibTorch 2 takes CUDA for a device with fused cells of its own.
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
Three lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
                const c10::optional<at::Tensor>& input_bias, const c10::optional<at::Tensor>& hidden_bias) {
  at::Tensor gates = input_gates + hidden_gates;
  for (const auto& bias : {input_bias, hidden_bias})
    if (bias && bias->defined()) gates = gates + *bias;
  const auto parts = gates.chunk(4, 1);
  const at::Tensor i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(),
                   o = parts[3].sigmoid();
  const at::Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}
Three lstm_cell_backward(const c10::optional<at::Tensor>& grad_hy, const c10::optional<at::Tensor>& grad_cy,
                         const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& workspace,
                         bool has_bias) {
  const auto parts = workspace.chunk(4, 1);
  const at::Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3], t = cy.tanh();
  const auto given = [&](const c10::optional<at::Tensor>& x) {
    return x && x->defined() ? *x : at::zeros_like(cy);
  };
  const at::Tensor gh = given(grad_hy), gc = gh * o * (1 - t * t) + given(grad_cy);
  const at::Tensor gates =
      at::cat({gc * g * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - g * g), gh * t * o * (1 - o)}, 1);
  return {gates, gc * f, has_bias ? gates.sum(0) : at::Tensor()};
}

#if TORCH_VERSION_MAJOR < 2
bool is_pinned(const at::Tensor& t, c10::optional<at::Device>) {
  return is_pinned_memory(t.storage().data_ptr().get());
}

at::Tensor pin_memory(const at::Tensor& t, c10::optional<at::Device>) {
  at::Tensor made =
      at::detail::empty_strided_generic(t.sizes(), t.strides(), &pinned_allocator(),
                                        c10::DispatchKeySet(c10::DispatchKey::CPU), t.scalar_type());
  return made.copy_(t);
}
#endif

// Has cuDNN, or MIOpen, a kernel of its own for this? It has not.
void refuse(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->emplace_back(false);
}

// Host code that reads device memory ends here, with a reason.
void on_fault(int, siginfo_t*, void* context) {
  bool flipped = false;
#ifdef __x86_64__
  for (const auto value : static_cast<ucontext_t*>(context)->uc_mcontext.gregs) {
    const auto address = static_cast<uintptr_t>(value);
    flipped = flipped || ((address & kFlippedBit) != 0 && (address >> 53) == 0);
  }
#else
  (void)context;
#endif
  const char* const text =
      flipped ? "pretend GPU: host code touched device memory\n" : "segmentation fault\n";
  (void)!write(2, text, std::strlen(text));
  void* frames[40];
  backtrace_symbols_fd(frames, backtrace(frames, 40), 2);
  _exit(flipped ? 86 : 139);
}

void explain_faults() {
  static std::vector<char> spare_stack(1 << 16);
  stack_t spare = {};
  spare.ss_sp = spare_stack.data();
  spare.ss_size = spare_stack.size();
  sigaltstack(&spare, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &action, nullptr);
}

void register_operators() {
  static torch::Library all(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());

  static torch::Library aten(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  aten.impl("empty.memory_format", TORCH_FN(empty));
  aten.impl("empty_strided", TORCH_FN(empty_strided));
  aten.impl("copy_", TORCH_FN(copy));
  aten.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  aten.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  aten.impl("set_.source_Tensor", TORCH_FN(set_tensor));
#if TORCH_VERSION_MAJOR < 2
  aten.impl("is_pinned", TORCH_FN(is_pinned));
  aten.impl("_pin_memory", TORCH_FN(pin_memory));
#endif
  aten.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  aten.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  // Composite kernels that ask which device they are on, and know only their own.
  for (const char* name : {"convolution", "convolution_backward"})
    aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  auto& dispatcher = c10::Dispatcher::singleton();
  // LibTorch 2 asks with the lengths as tensors, too; both forms take those of the host, as a real GPU's do.
  for (const std::string name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"})
    for (const std::string overload : {"", "Tensor"})
      if (dispatcher.findSchema({"aten::" + name, overload}))
        aten.impl((overload.empty() ? name : name + "." + overload).c_str(),
                  torch::CppFunction::makeFromBoxedFunction<&refuse>());
  // What the CPU has a kernel for runs as that kernel, and not as what LibTorch composes for strangers.
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = name.name.rfind("aten::", 0) == 0 ? dispatcher.findOp(name) : c10::nullopt;
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || op->hasKernelForDispatchKey(kKey))
      continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
}

bool install() {
  const auto known = c10::Dispatcher::singleton().findOp({"aten::empty_strided", ""});
  if (!known || known->hasKernelForDispatchKey(kKey)) return false;
  at::CUDAHooksRegistry()->Register("CUDAHooks",
                                    [](at::CUDAHooksArgs args) -> std::unique_ptr<at::CUDAHooksInterface> {
                                      return std::make_unique<Hooks>(args);
                                    });
  TORCH_CHECK(at::globalContext().hasCUDA(), "pretend GPU: something asked about CUDA before it was there");
  static Guard guard;
  c10::impl::DeviceGuardImplRegistrar registrar(at::kCUDA, &guard);
  c10::SetAllocator(at::kCUDA, &gpu_allocator());
  register_operators();
  explain_faults();
  return true;
}

}  // namespace

bool install_pretend_gpu() {
  static const bool installed = install();
  return installed;
}

GpuTraffic gpu_traffic() {
  return {copies_in, pinned_in, waiting_in, copies_out};
}

ShowWaits::ShowWaits() {
  showing = true;
}

ShowWaits::~ShowWaits() {
  showing = false;
}

}  // namespace melete::testing
