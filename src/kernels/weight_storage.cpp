#include "kernels/weight_storage.h"

#include <array>

#include "core/base/error.h"

namespace melete {

namespace {

struct Form {
  WeightStorage storage;
  const char* precision;
  double bytes;
};
constexpr std::array<Form, 3> kForms = {{{WeightStorage::float32, "fp32", 4},
                                         {WeightStorage::bf16, "bf16", 2},
                                         {WeightStorage::int8, "int8", 1 + 4.0 / 64}}};

}  // namespace

std::vector<std::string> weight_precisions() {
  std::vector<std::string> names;
  for (const Form& form : kForms) names.emplace_back(form.precision);
  return names;
}

WeightStorage weight_storage(const std::string& precision) {
  for (const Form& form : kForms)
    if (precision == form.precision) return form.storage;
  fail("[precision] expected fp32, bf16 or int8 for weights, got {}", precision);
}

double bytes_per_weight(WeightStorage storage) {
  for (const Form& form : kForms)
    if (storage == form.storage) return form.bytes;
  return 0;
}

}  // namespace melete
