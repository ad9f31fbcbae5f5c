#include "pretrained/fairseq.h"

#include <cctype>

#include "core/base/error.h"

namespace melete::fairseq {

namespace {

constexpr int64_t kMostLayers = 1000;

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  bool at_end() {
    skip();
    return at_ >= text_.size();
  }
  bool take(char wanted) {
    skip();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) refuse();
  }
  int64_t number() {
    skip();
    int64_t value = 0;
    const size_t begin = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) && at_ - begin < 9)
      value = value * 10 + (text_[at_++] - '0');
    if (at_ == begin) refuse();
    return value;
  }
  [[noreturn]] void refuse() const {
    fail("[fairseq] expected layers like [(512, 10, 5)] + [(512, 3, 2)] * 4, got `{}` (at character {})",
         text_.substr(0, 200), at_);
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  const std::string& text_;
  size_t at_ = 0;
};

struct Layer {
  int64_t dim, kernel, stride;
};

std::vector<Layer> one_list(Reader& reader) {
  std::vector<Layer> layers;
  reader.expect('[');
  while (!reader.take(']')) {
    reader.expect('(');
    Layer layer{};
    layer.dim = reader.number();
    reader.expect(',');
    layer.kernel = reader.number();
    reader.expect(',');
    layer.stride = reader.number();
    reader.take(',');
    reader.expect(')');
    layers.push_back(layer);
    if (!reader.take(',')) {
      reader.expect(']');
      break;
    }
  }
  return layers;
}

}  // namespace

ConvLayers conv_layers(const std::string& text) {
  Reader reader(text);
  ConvLayers result;
  do {
    const std::vector<Layer> layers = one_list(reader);
    const int64_t times = reader.take('*') ? reader.number() : 1;
    for (int64_t i = 0; i < times; ++i)
      for (const Layer& layer : layers) {
        if (static_cast<int64_t>(result.dims.size()) >= kMostLayers) reader.refuse();
        result.dims.push_back(layer.dim);
        result.kernels.push_back(layer.kernel);
        result.strides.push_back(layer.stride);
      }
  } while (reader.take('+'));
  if (!reader.at_end() || result.dims.empty()) reader.refuse();
  return result;
}

}  // namespace melete::fairseq
