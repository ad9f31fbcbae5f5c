#include "spear_tts.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"

namespace melete::golden {

using namespace spear_tts;

namespace {

const std::string kWrapped = "model.";

bool is_wrapped(const Case& c) {
  return !below(c.weights, kWrapped).empty();
}

}  // namespace

SpearModel spear_model(const Case& c, const nlohmann::ordered_json& arguments) {
  SpearModel result{foreign_settings(arguments)};
  result.model = TextToSemantic(result.settings.model);
  load_state_dict(*result.model, is_wrapped(c) ? below(c.weights, kWrapped) : c.weights);
  return result;
}

Modality modality(const nlohmann::ordered_json& name) {
  const auto text = name.get<std::string>();
  require(text == "speech" || text == "text", "[golden] expected speech or text, got {}", text);
  return text == "speech" ? Modality::speech : Modality::text;
}

Direction direction(const nlohmann::ordered_json& call) {
  return {modality(call.at("source_type")), modality(call.at("target_type"))};
}

at::Tensor given_mask(const Case& c, const std::string& key) {
  return c.has("in." + key) ? c.in(key).to(at::kBool) : at::Tensor();
}

SpearDraws::SpearDraws(const Case& recorded, std::string prefix)
    : case_(recorded), prefix_(std::move(prefix)) {
  std::vector<std::string> names;
  for (const auto& [key, tensor] : recorded.io)
    if (key.starts_with(prefix_) && key.find("dropout", prefix_.size()) != std::string::npos)
      names.push_back(key);
  std::sort(names.begin(), names.end(), natural_less);
  for (const std::string& name : names) {
    const at::Tensor& drawn = recorded.get(name);
    const at::Tensor values = drawn.to(at::kFloat), some = values.ne(0);
    // What is kept is at the rate or above it, at whatever rate.
    const bool mask =
        !at::isFloatingType(drawn.scalar_type()) || values.eq(some * values.max()).all().item<bool>();
    dropout_.push_back(mask ? some.to(at::kFloat) : values);
  }
}

int64_t SpearDraws::integer(std::string_view what, int64_t, int64_t) {
  fail("[golden] no integer was drawn for {}", what);
}

at::Tensor SpearDraws::rows(std::string_view what, int64_t, int64_t) {
  fail("[golden] no rows were drawn for {}", what);
}

at::Tensor SpearDraws::normal(std::string_view what, at::IntArrayRef) {
  fail("[golden] no normal values were drawn for {}", what);
}

at::Tensor SpearDraws::uniform(std::string_view what, at::IntArrayRef shape) {
  if (what == "drop_condition") return case_.get(prefix_ + "drop_coin").reshape(shape);
  if (what == "subset") return case_.get(prefix_ + "uniform").reshape(shape);
  if (what == "gumbel") return case_.get(prefix_ + "gumbel_uniform")[step_++].reshape(shape);
  if (what == "dropout") {
    require(!dropout_.empty(), "[golden] no recorded draw left for {}", what);
    const at::Tensor drawn = dropout_.front();
    dropout_.pop_front();
    return drawn.reshape(shape);
  }
  fail("[golden] nothing was recorded for {}", what);
}

void check_gradients(const Case& c, Checker& check, TextToSemantic& model) {
  const std::string prefix = "grad." + (is_wrapped(c) ? kWrapped : "");
  std::set<std::string> compared;
  const auto parameters = model->named_parameters();
  for (const ForeignTensor& own : foreign_tensors(*model)) {
    const std::string key = prefix + own.theirs.front();
    const at::Tensor* parameter = parameters.find(own.ours);
    if (parameter == nullptr) continue;  // their rotation is a frozen parameter
    const at::Tensor gradient = parameter->grad();
    if (c.has(key)) {
      check.gradient(key, gradient.defined() ? gradient.view(own.tensor.sizes()) : gradient, c.get(key));
      compared.insert(key);
    } else if (gradient.defined() && gradient.ne(0).any().item<bool>()) {
      check.fail(own.ours + " has a gradient, which it has not in the case");
    }
  }
  for (const auto& [key, tensor] : below(c.io, "grad."))
    if (compared.count("grad." + key) == 0) check.fail("nothing here has the gradient of " + key);
}

}  // namespace melete::golden
