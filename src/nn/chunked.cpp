#include "nn/chunked.h"

#include <torch/autograd.h>
#include <torch/custom_class.h>

#include "core/autocast.h"
#include "core/base/error.h"
#include "nn/draws.h"

namespace melete {

namespace {

// Passes draws on and keeps them; from replay() on it gives them again.
class KeptDraws : public Draws {
 public:
  explicit KeptDraws(Draws* from) : from_(from) {}
  void replay() {
    replaying_ = true;
    next_integer_ = next_tensor_ = 0;
  }

  int64_t integer(std::string_view what, int64_t low, int64_t high) override {
    if (!replaying_) integers_.push_back(from_->integer(what, low, high));
    return integers_.at(next_integer_++);
  }
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override {
    return keep([&] { return from_->rows(what, population, count); });
  }
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override {
    return keep([&] { return from_->uniform(what, shape); });
  }
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override {
    return keep([&] { return from_->normal(what, shape); });
  }

 private:
  template <class Draw>
  at::Tensor keep(Draw draw) {
    if (!replaying_) tensors_.push_back(draw());
    return tensors_.at(next_tensor_++);
  }

  Draws* from_;
  bool replaying_ = false;
  size_t next_integer_ = 0, next_tensor_ = 0;
  std::vector<int64_t> integers_;
  std::vector<at::Tensor> tensors_;
};

struct Chunk {
  RowRange rows;
  std::unique_ptr<KeptDraws> draws;
};

// What the backward pass needs, in a holder that autograd can keep.
struct Work : torch::CustomClassHolder {
  std::function<std::vector<at::Tensor>(const RowRange&)> f;
  std::vector<Chunk> chunks;
  bool autocast = false;
};

std::vector<at::Tensor> run(Work& work) {
  std::vector<std::vector<at::Tensor>> parts;  // by result, then by chunk
  for (Chunk& chunk : work.chunks) {
    const std::vector<at::Tensor> results = work.f(chunk.rows);
    parts.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) parts[i].push_back(results[i]);
  }
  std::vector<at::Tensor> whole;
  for (const auto& part : parts) whole.push_back(at::cat(part));
  return whole;
}

// With gradients, and with mixed precision as it was; the backward pass itself must run outside its scope.
std::vector<at::Tensor> run_again(Work& work, const Chunk& chunk, c10::DeviceType device) {
  const at::AutoGradMode with_gradients(true);
  const AutocastScope as_before(device, work.autocast);
  return work.f(chunk.rows);
}

struct Chunked : torch::autograd::Function<Chunked> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                at::TensorList parameters,
                                                const c10::intrusive_ptr<Work>& work) {
    context->save_for_backward(parameters.vec());
    context->saved_data["work"] = c10::IValue::make_capsule(work);
    return run(*work);  // below autograd, so nothing of it is kept
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto parameters = context->get_saved_variables();
    const auto holder = context->saved_data["work"].toCapsule();
    Work& work = static_cast<Work&>(*holder);
    std::vector<at::Tensor> wanted;
    for (const at::Tensor& parameter : parameters)
      if (parameter.requires_grad()) wanted.push_back(parameter);
    std::vector<at::Tensor> sums(wanted.size());
    for (Chunk& chunk : work.chunks) {
      if (chunk.draws) chunk.draws->replay();
      const std::vector<at::Tensor> results = run_again(work, chunk, wanted.front().device().type());
      torch::autograd::variable_list roots, incoming;
      for (size_t i = 0; i < results.size(); ++i) {
        if (!gradients[i].defined()) continue;
        roots.push_back(results[i]);
        incoming.push_back(gradients[i].slice(0, chunk.rows.begin, chunk.rows.end));
      }
      if (roots.empty()) continue;
      const auto parts = torch::autograd::grad(roots, wanted, incoming, false, false, true);
      for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i].defined()) sums[i] = sums[i].defined() ? sums[i] + parts[i] : parts[i];
    }
    torch::autograd::variable_list result;
    size_t next = 0;
    for (const at::Tensor& parameter : parameters)
      result.push_back(parameter.requires_grad() ? sums[next++] : at::Tensor());
    result.emplace_back();  // of the work
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> chunked(const std::vector<at::Tensor>& parameters, int64_t rows, int64_t chunk,
                                Draws* draws, std::function<std::vector<at::Tensor>(const RowRange&)> f) {
  require(rows > 0 && chunk > 0, "[chunked] expected rows in chunks, got {} in chunks of {}", rows, chunk);
  auto work = c10::make_intrusive<Work>();
  work->f = std::move(f);
  if (!parameters.empty())
    work->autocast = autocast_type(parameters.front().device().type(), at::kFloat) != at::kFloat;
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    Chunk part;
    part.rows.begin = begin;
    part.rows.end = std::min(begin + chunk, rows);
    if (draws) part.draws = std::make_unique<KeptDraws>(draws);
    part.rows.draws = part.draws.get();
    work->chunks.push_back(std::move(part));
  }
  bool learns = false;
  for (const at::Tensor& parameter : parameters) learns = learns || parameter.requires_grad();
  if (!learns || !at::GradMode::is_enabled()) return run(*work);
  return Chunked::apply(at::TensorList(parameters), work);
}

}  // namespace melete
