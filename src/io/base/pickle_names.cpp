#include "io/base/pickle_names.h"

#include <algorithm>
#include <iterator>

namespace melete {

namespace {

// Functions and classes with a meaning of their own; Unpickler::call says which.
constexpr std::string_view kKnown[] = {
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "collections.deque",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._tensor._rebuild_from_type_v2",
    "torch.Size",
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.device",
    "_codecs.encode",
    "copyreg._reconstructor",
    "copy_reg._reconstructor",
    "numpy.ndarray",
    "numpy.dtype",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.core.numeric._frombuffer",
    "numpy._core.numeric._frombuffer",
    "joblib.numpy_pickle.NumpyArrayWrapper",
};
constexpr std::string_view kBuiltins[] = {"dict",    "list",  "tuple", "set",   "frozenset", "int",
                                          "float",   "bool",  "str",   "bytes", "bytearray", "object",
                                          "complex", "slice", "range", "long",  "unicode"};

// Classes that configurations are made of. A name that ends with a dot is a whole package.
constexpr std::string_view kInert[] = {
    "argparse.Namespace",
    "types.SimpleNamespace",
    "typing.",
    "enum.",
    "pathlib.Path",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath",
    "datetime.",
    "fairseq.",
    "omegaconf.",
    "sklearn.",
    "numpy.random.",
    "transformers.",
    "torch.optim.lr_scheduler.",
    "packaging.version.",
};

constexpr PickleElement kElements[] = {
    {"DoubleStorage", "float64", "f8", 8, DType::f64},
    {"FloatStorage", "float32", "f4", 4, DType::f32},
    {"HalfStorage", "float16", "f2", 2, DType::f16},
    {"BFloat16Storage", "bfloat16", "", 2, DType::bf16},
    {"LongStorage", "int64", "i8", 8, DType::i64},
    {"IntStorage", "int32", "i4", 4, DType::i32},
    {"ShortStorage", "int16", "i2", 2, DType::i16},
    {"CharStorage", "int8", "i1", 1, DType::i8},
    {"ByteStorage", "uint8", "u1", 1, DType::u8},
    {"BoolStorage", "bool", "b1", 1, DType::boolean},
    {"UntypedStorage", "uint8", "", 1, DType::u8},
    {"ComplexFloatStorage", "complex64", "c8", 8, std::nullopt},
    {"ComplexDoubleStorage", "complex128", "c16", 16, std::nullopt},
    {"", "uint16", "u2", 2, std::nullopt},
    {"", "uint32", "u4", 4, std::nullopt},
    {"", "uint64", "u8", 8, std::nullopt},
};
// Other spellings of torch's element types.
constexpr std::pair<std::string_view, std::string_view> kTorchAliases[] = {
    {"half", "float16"}, {"float", "float32"}, {"double", "float64"},   {"long", "int64"},
    {"int", "int32"},    {"short", "int16"},   {"cfloat", "complex64"}, {"cdouble", "complex128"}};

template <class Member>
const PickleElement* element_by(Member member, std::string_view text) {
  for (const PickleElement& element : kElements)
    if (!text.empty() && element.*member == text) return &element;
  return nullptr;
}

template <class List>
bool contains(const List& list, std::string_view text) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

}  // namespace

const PickleElement* torch_dtype(std::string_view name) {  // "torch.float32"
  if (!name.starts_with("torch.")) return nullptr;
  name.remove_prefix(6);
  for (const auto& [alias, meaning] : kTorchAliases)
    if (alias == name) name = meaning;
  const PickleElement* found = element_by(&PickleElement::name, name);
  return found;
}

const PickleElement* torch_storage(std::string_view name) {  // "torch.FloatStorage"
  for (const std::string_view prefix : {"torch.storage.", "torch.cuda.", "torch."})
    if (name.starts_with(prefix))
      return element_by(&PickleElement::torch_storage, name.substr(prefix.size()));
  return nullptr;
}

std::string_view without_builtins(std::string_view name) {
  for (const std::string_view prefix : {"builtins.", "__builtin__."})
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return {};
}

const PickleElement* numpy_element(std::string_view code) {
  return element_by(&PickleElement::numpy, code);
}

bool name_matches(std::string_view pattern, std::string_view name) {
  return pattern.ends_with('.') ? name.starts_with(pattern) : name == pattern;
}

bool is_known_name(std::string_view name) {
  const std::string_view builtin = without_builtins(name);
  if (contains(kKnown, name) || torch_dtype(name) || torch_storage(name)) return true;
  if (!builtin.empty() && contains(kBuiltins, builtin)) return true;
  return std::any_of(std::begin(kInert), std::end(kInert),
                     [&](std::string_view pattern) { return name_matches(pattern, name); });
}

}  // namespace melete
