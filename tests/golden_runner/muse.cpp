#include "muse.h"

#include <algorithm>
#include <filesystem>
#include <regex>

#include "core/base/error.h"

namespace melete::golden {

int64_t MuseDraws::integer(std::string_view what, int64_t low, int64_t high) {
  const double value = uniform(what, {1}).to(at::kDouble).item<double>();
  return low + static_cast<int64_t>(value * static_cast<double>(high - low));
}

at::Tensor MuseDraws::rows(std::string_view what, int64_t, int64_t count) {
  require(!rows_.empty(), "no recorded draw left for {}", what);
  const at::Tensor drawn = rows_.front();
  rows_.pop_front();
  require(drawn.numel() >= count, "the recorded draw for {} has {} rows, wanted {}", what, drawn.numel(),
          count);
  return drawn.flatten().narrow(0, 0, count);
}

at::Tensor MuseDraws::uniform(std::string_view what, at::IntArrayRef shape) {
  auto& queue = values_[std::string(what)];
  require(!queue.empty(), "no recorded draw left for {}", what);
  const at::Tensor values = queue.front();
  queue.pop_front();
  return values.reshape(shape);
}

at::Tensor MuseDraws::normal(std::string_view what, at::IntArrayRef shape) {
  return uniform(what, shape);
}

MuseDraws vqgan_draws(const Case& c) {
  MuseDraws draws;
  for (int64_t i = 0; c.has(fmt::format("rand.vgg_dropout_keep{}", i)); ++i)
    draws.add("dropout", c.rand(fmt::format("vgg_dropout_keep{}", i)));  // kept where 1
  // "rand.rows2" before "rand.rows10"
  std::vector<std::pair<int64_t, std::string>> keys;
  for (const auto& [key, tensor] : c.io) {
    if (!key.starts_with("rand.") || key.starts_with("rand.vgg_dropout_keep")) continue;
    const size_t digits = key.find_last_not_of("0123456789") + 1;
    keys.emplace_back(digits < key.size() ? std::stoll(key.substr(digits)) : 0, key);
  }
  std::sort(keys.begin(), keys.end());
  for (const auto& [number, key] : keys) {
    const at::Tensor& tensor = c.get(key);
    if (tensor.scalar_type() == at::kLong)
      draws.add_rows(tensor);
    else if (key.find("gumbel") != std::string::npos)
      draws.add("gumbel", tensor);
    else
      draws.add("entropy", tensor);
  }
  return draws;
}

Vgg16 vgg_of(const Case& c) {
  const std::string path = c.folder + "/vgg.safetensors";
  if (!std::filesystem::exists(path)) return Vgg16(nullptr);
  return torchvision::load_vgg16(read_tensors(path));
}

bool changes_nothing(const NamedPair& pair, const muse::VqganConfig& config) {
  static const std::regex in_encoder(R"((^|\.)encoder\.\d+\.blocks\.\d+\.(first|second)\.bias$)");
  static const std::regex in_discriminator(R"(^(discriminator\.)?layers\.\d+\.down\.bias$)");
  const int64_t channels = pair.tensor.size(0);
  return (channels == config.vae.groups && std::regex_search(pair.ours, in_encoder)) ||
         (channels == config.discriminator.groups && std::regex_search(pair.ours, in_discriminator));
}

void check_gradients(const Case& c, Checker& check, const std::vector<NamedPair>& pairs,
                     const muse::VqganConfig& config) {
  for (const NamedPair& pair : pairs) {
    const std::string key = "grad." + pair.theirs;
    if (!c.has(key)) continue;
    const at::Tensor own = pair.tensor.grad(), wanted = c.get(key);
    if (!own.defined() && wanted.abs().max().item<double>() == 0) continue;
    if (changes_nothing(pair, config)) {
      const std::string weight = key.substr(0, key.size() - 4) + "weight";
      const at::Tensor scale = 10 * c.get(weight).abs().max();  // up to 1e-4 of the weight's gradient
      check.close(key + ", zero here", own / scale, at::zeros_like(own));
      check.close(key + ", zero there", wanted / scale, at::zeros_like(own));
    } else {
      check.gradient(key, own.defined() ? pair.as_theirs(own) : own, wanted);
    }
  }
}

void check_state(const Case& c, Checker& check, const std::vector<NamedPair>& pairs,
                 const std::string& prefix) {
  for (const NamedPair& pair : pairs) {
    const std::string key = prefix + pair.theirs;
    if (pair.form == NamedPair::Form::presence || !c.has(key)) continue;
    check.close(key, pair.as_theirs(pair.tensor.detach()), c.get(key));
  }
}

double argument(const Case& c, const std::string& name, double otherwise) {
  const auto none = nlohmann::ordered_json::object();
  const auto part = [&](const nlohmann::ordered_json& of, const char* key) { return of.value(key, none); };
  for (const nlohmann::ordered_json& from :
       {part(c.json, "inputs"), part(c.config, "generate"), part(c.config, "forward"), c.config}) {
    const auto found = from.find(name);
    if (found == from.end()) continue;
    const auto& value = found->is_object() ? found->at("value") : *found;
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    if (value.is_number()) return value.get<double>();
  }
  return otherwise;
}

}  // namespace melete::golden
