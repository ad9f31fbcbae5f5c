// Python's pickle format as data. Nothing is ever called: names on a short list have a meaning (a dict, a
// tensor, a numpy array) or become inert objects (configuration classes), and any other name is refused with
// that name in the message. Memory stays within a constant factor of the pickle's own size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/base/safetensors.h"

namespace melete {

class PickleValue;

// A view into a storage: strides count elements and need not be contiguous.
struct PickleTensor {
  std::optional<DType> dtype;  // nothing for types that safetensors has no name for
  std::string element;         // "float32", "complex64", "uint32"
  size_t element_bytes = 0;
  std::vector<int64_t> shape, strides;
  // From the first element to the last one that the strides reach; little-endian.
  std::span<const std::byte> bytes;
  bool in_input = false;       // the bytes are the input's own, not a copy that the tree holds
  size_t storage = 0;          // tensors with the same number share memory; numpy arrays have their own
  int64_t storage_offset = 0;  // in elements

  int64_t numel() const;
  bool contiguous() const;
};

struct PickleDict {
  std::vector<std::pair<const PickleValue*, const PickleValue*>> entries;  // in order, keys once
  const PickleValue* attributes = nullptr;  // what BUILD gave to an OrderedDict (a state_dict's `_metadata`)
};

// An instance of a class that is kept as data.
struct PickleObject {
  std::string name;  // "argparse.Namespace"
  const PickleValue* arguments = nullptr;
  const PickleValue* state = nullptr;
  PickleDict items;                          // of a class that derives from dict
  std::vector<const PickleValue*> elements;  // of a class that derives from list
};

class PickleValue {
 public:
  enum class Kind { none, boolean, integer, real, text, bytes, list, tuple, set, dict, tensor, object, name };
  using Items = std::vector<const PickleValue*>;

  Kind kind = Kind::none;
  bool ordered = false;  // a dict that was an OrderedDict
  // text: text, bytes, the digits of an integer beyond 64 bits, "module.name" of a name.
  std::variant<std::monostate, bool, int64_t, double, std::string, Items, PickleDict,
               std::unique_ptr<PickleTensor>, std::unique_ptr<PickleObject>>
      data;

  bool is(Kind which) const { return kind == which; }
  bool is_none() const { return kind == Kind::none; }

  // nullptr when it is something else.
  const std::string* text() const;  // of a text, bytes or name
  const Items* items() const;       // of a list, tuple, set, or a list-like object
  const PickleDict* dict() const;   // of a dict, or a dict-like object
  const PickleTensor* tensor() const;
  const PickleObject* object() const;
  std::optional<int64_t> integer() const;  // an integer or boolean that fits
  std::optional<double> number() const;    // an integer, boolean or real

  // A dict's entry or an object's attribute; nullptr when there is none.
  const PickleValue* find(std::string_view key) const;
  const PickleValue* find(int64_t key) const;
  const PickleValue& at(std::string_view key, const std::string& where) const;  // throws when there is none

  std::string_view kind_name() const;
};

// Storage that tensors of a pickle refer to by a persistent name.
struct PickleStorage {
  std::string key;      // member `data/<key>` of a torch archive
  std::string element;  // "float32"; "uint8" for storages without a type
  size_t element_bytes = 0;
  int64_t elements = 0;
  std::span<const std::byte> bytes;  // empty until bound
};

struct UnpickleOptions {
  bool torch_storages = false;     // persistent names are torch's storages; without it they are refused
  std::vector<std::string> inert;  // further names, or prefixes that end with a dot, to keep as inert objects
};

// The values of one pickle. They live as long as this, wherever it is moved.
class PickleTree {
 public:
  const PickleValue& root() const { return *root_; }
  size_t consumed() const { return consumed_; }  // bytes of the input up to and with the last opcode
  const std::vector<PickleStorage>& storages() const { return storages_; }

  // Gives every storage its bytes and checks every tensor against them.
  void bind(const std::function<std::span<const std::byte>(const PickleStorage&)>& bytes_of,
            const std::string& where);

 private:
  friend class Unpickler;
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
  size_t consumed_ = 0;
  std::vector<PickleStorage> storages_;
  std::vector<PickleTensor*> tensors_;  // over storages
};

// Reads one pickle from the front of `bytes`, which must outlive the tree. Arrays that joblib wrote between
// the opcodes are found where they are.
PickleTree unpickle(std::span<const std::byte> bytes, const std::string& where,
                    const UnpickleOptions& options = {});

// Copies a tensor's elements in row-major order; `out` has numel * element_bytes bytes.
void copy_contiguous(const PickleTensor& tensor, std::span<std::byte> out);

}  // namespace melete
