#include "pretrained/vgg16.h"

#include <torch/nn/modules/conv.h>

#include <cstdio>
#include <map>

#include "core/base/error.h"
#include "nn/draws.h"
#include "nn/feed_forward.h"

namespace melete {

namespace {

constexpr int64_t kPooled = 7;  // sides of the map that the hidden layer sees, whatever the picture's size
constexpr double kDropout = 0.5;

}  // namespace

Vgg16Impl::Vgg16Impl(const Vgg16Config& config) : config_(config) {
  int64_t before = 3;
  for (const auto& block : config.blocks)
    for (const int64_t channels : block) {
      convolutions->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(before, channels, 3).padding(1)));
      before = channels;
    }
  register_module("convolutions", convolutions);
  hidden = register_module("hidden", linear(before * kPooled * kPooled, config.hidden, true));
  output = register_module("output", linear(config.hidden, config.features, true));
  mean_ = at::tensor({0.485f, 0.456f, 0.406f}).view({1, 3, 1, 1});
  spread_ = at::tensor({0.229f, 0.224f, 0.225f}).view({1, 3, 1, 1});
}

at::Tensor Vgg16Impl::forward(const at::Tensor& pictures) {
  if (mean_.device() != pictures.device()) {
    mean_ = mean_.to(pictures.device());
    spread_ = spread_.to(pictures.device());
  }
  return forward_raw((pictures - mean_) / spread_, nullptr);
}

at::Tensor Vgg16Impl::forward_raw(const at::Tensor& pictures, Draws* draws) {
  at::Tensor x = pictures.contiguous(at::MemoryFormat::ChannelsLast);
  size_t next = 0;
  for (const auto& block : config_.blocks) {
    for (size_t i = 0; i < block.size(); ++i)
      x = convolutions[next++]->as<torch::nn::Conv2dImpl>()->forward(x).relu_();
    x = at::max_pool2d(x, 2);
  }
  x = at::adaptive_avg_pool2d(x, {kPooled, kPooled}).flatten(1);
  x = dropout(at::relu(project(x, hidden)), kDropout, draws);
  return at::relu(project(x, output));
}

namespace torchvision {

namespace {

// The convolutions' places in `features`, which counts rectifiers and poolings, too.
std::map<int, const at::Tensor*> convolutions_of(const TensorMap& state_dict) {
  std::map<int, const at::Tensor*> found;
  for (const auto& [name, tensor] : state_dict) {
    int place = 0, end = 0;
    if (std::sscanf(name.c_str(), "features.%d.weight%n", &place, &end) != 1) continue;
    if (end != static_cast<int>(name.size())) continue;
    require(tensor.dim() == 4 && tensor.size(2) == 3 && tensor.size(3) == 3,
            "[vgg16] `{}` is no 3 x 3 convolution; models with batch normalisation do not fit here", name);
    found[place] = &tensor;
  }
  require(!found.empty(), "[vgg16] the file has no `features.0.weight`; expected torchvision's vgg16");
  return found;
}

const at::Tensor& tensor_of(const TensorMap& state_dict, const std::string& name) {
  const auto found = state_dict.find(name);
  require(found != state_dict.end(), "[vgg16] the file has no `{}`; expected torchvision's vgg16", name);
  return found->second;
}

}  // namespace

Vgg16Config vgg16_config(const TensorMap& state_dict) {
  Vgg16Config config;
  config.blocks = {{}};
  int expected = 0;
  for (const auto& [place, weight] : convolutions_of(state_dict)) {
    if (place == expected + 1 && expected > 0) {  // a pooling stands between
      config.blocks.emplace_back();
      expected = place;
    }
    require(place == expected, "[vgg16] layer {} of `features` does not stand where a convolution should",
            place);
    config.blocks.back().push_back(weight->size(0));
    expected = place + 2;
  }
  config.hidden = tensor_of(state_dict, "classifier.0.weight").size(0);
  config.features = tensor_of(state_dict, "classifier.3.weight").size(0);
  return config;
}

Vgg16 load_vgg16(const TensorMap& state_dict) {
  const at::NoGradGuard no_grad;
  Vgg16 model(vgg16_config(state_dict));
  const auto copy = [&](const at::Tensor& to, const std::string& name) {
    const at::Tensor& from = tensor_of(state_dict, name);
    require(from.sizes() == to.sizes(), "[vgg16] `{}` has {} values, expected {}", name, from.numel(),
            to.numel());
    at::Tensor(to).copy_(from);
  };
  size_t index = 0;
  for (const auto& [place, weight] : convolutions_of(state_dict)) {
    const auto* layer = model->convolutions[index++]->as<torch::nn::Conv2dImpl>();
    copy(layer->weight, fmt::format("features.{}.weight", place));
    copy(layer->bias, fmt::format("features.{}.bias", place));
  }
  copy(model->hidden->weight, "classifier.0.weight");
  copy(model->hidden->bias, "classifier.0.bias");
  copy(model->output->weight, "classifier.3.weight");
  copy(model->output->bias, "classifier.3.bias");
  model->eval();
  for (const at::Tensor& weight : model->parameters()) weight.set_requires_grad(false);
  return model;
}

}  // namespace torchvision

}  // namespace melete
