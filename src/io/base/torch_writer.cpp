#include "io/base/torch_writer.h"

#include <filesystem>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/base/pickle_json.h"
#include "io/base/zip_archive.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

std::string_view storage_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "DoubleStorage";
    case DType::f32:
      return "FloatStorage";
    case DType::f16:
      return "HalfStorage";
    case DType::bf16:
      return "BFloat16Storage";
    case DType::i64:
      return "LongStorage";
    case DType::i32:
      return "IntStorage";
    case DType::i16:
      return "ShortStorage";
    case DType::i8:
      return "CharStorage";
    case DType::u8:
      return "ByteStorage";
    case DType::boolean:
      return "BoolStorage";
  }
  fail("[torch file] unknown element type");
}

std::string plain(const Json& value) {  // the opcodes without the frame of a whole pickle
  const std::string whole = json_to_pickle(value);
  return whole.substr(2, whole.size() - 3);
}

Json tuple_of(const std::vector<int64_t>& values) {
  return {{"$tuple", values}};
}

}  // namespace

void write_torch_file(const std::string& path, const Json& tree,
                      const std::map<std::string, TensorBytes>& tensors) {
  std::map<std::string, size_t> keys;
  std::vector<const TensorBytes*> storages;
  const std::string pickle = json_to_pickle(tree, [&](const Json& reference) {
    const std::string name = reference.at("$tensor").get<std::string>();
    const auto found = tensors.find(name);
    require(found != tensors.end(), "[write {}] there is no tensor '{}'", path, name);
    const TensorBytes& tensor = found->second;
    const auto [key, added] = keys.try_emplace(name, storages.size());
    if (added) storages.push_back(&tensor);
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    int64_t elements = 1;
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      strides[i] = elements;
      elements *= tensor.shape[i];
    }
    return "ctorch._utils\n_rebuild_tensor_v2\n((" + plain("storage") + "ctorch\n" +
           std::string(storage_name(tensor.dtype)) + "\n" + plain(std::to_string(key->second)) +
           plain("cpu") + plain(elements) + "tQ" + plain(0) + plain(tuple_of(tensor.shape)) +
           plain(tuple_of(strides)) + "\x89" + plain({{"$ordered", Json::array()}}) + "tR";
  });

  const std::string folder = std::filesystem::path(path).stem().string() + "/";
  AtomicFile file(path);
  ZipWriter zip(file);
  zip.add(folder + "data.pkl", pickle);
  zip.add(folder + "byteorder", "little");
  for (size_t i = 0; i < storages.size(); ++i)
    zip.add(folder + "data/" + std::to_string(i), storages[i]->bytes);
  zip.add(folder + "version", "3\n");
  zip.finish();
  file.commit();
}

}  // namespace melete
