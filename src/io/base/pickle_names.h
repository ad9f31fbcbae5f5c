// Which names a pickle may use, and what numbers are called by torch and numpy.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "io/base/pickle.h"

namespace melete {

struct PickleElement {
  std::string_view torch_storage, name, numpy;
  size_t bytes;
  std::optional<DType> dtype;
};

// nullptr when it is none of them.
const PickleElement* torch_dtype(std::string_view name);    // "torch.float32"
const PickleElement* torch_storage(std::string_view name);  // "torch.FloatStorage"
const PickleElement* numpy_element(std::string_view code);  // "f4"

std::string_view without_builtins(std::string_view name);  // "builtins.dict" -> "dict"; else empty

// Names that have a meaning or are kept as inert data. Everything else is refused.
bool is_known_name(std::string_view name);
// A pattern that ends with a dot is a whole package.
bool name_matches(std::string_view pattern, std::string_view name);

// A value inside itself, nesting deeper than any reader should follow, and values that contain each other so
// often that walking over them would never end, are refused here: whoever walks the tree need not care. Keys
// that were given twice are merged.
void check_pickle_graph(std::deque<PickleValue>& values, const PickleValue* root, size_t pickle_bytes,
                        const std::string& where);

}  // namespace melete
