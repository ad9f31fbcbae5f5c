// The precision of generation that is made of large products: what their factors are rounded to.
#pragma once

#include <string>
#include <vector>

#include "core/autocast.h"

namespace melete {

inline std::vector<std::string> product_precisions() {
  return {"fp32", "bf16"};
}
inline constexpr const char* kProductPrecision =
    "of the factors of products; bf16: faster where the processor or the GPU has it, a little less exact";

// Inside, products round their factors if that is the precision, and pays on that device.
class ProductPrecision {
 public:
  ProductPrecision(const std::string& precision, c10::DeviceType device)
      : scope_(device, precision == "bf16" && bf16_pays(device)) {}

 private:
  AutocastScope scope_;
};

}  // namespace melete
