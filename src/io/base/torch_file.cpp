#include "io/base/torch_file.h"

#include <cstring>
#include <map>

#include "core/base/error.h"
#include "io/base/mapped_file.h"
#include "io/base/zip_archive.h"

namespace melete {

namespace {

// torch's legacy files begin with this number as a pickle of protocol 2: PROTO 2, LONG1, ten bytes.
constexpr unsigned char kLegacyMark[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c,
                                         0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

bool legacy_mark(std::span<const std::byte> file) {
  return file.size() >= sizeof(kLegacyMark) &&
         std::memcmp(file.data(), kLegacyMark, sizeof(kLegacyMark)) == 0;
}

}  // namespace

bool looks_like_torch_file(std::span<const std::byte> file) {
  return looks_like_zip(file) || legacy_mark(file);
}

TorchFile::TorchFile(const std::string& path, const UnpickleOptions& options) {
  MappedFile file(path);
  mapping_ = file.owner;
  read(file.bytes, path, options);
}

TorchFile::TorchFile(std::span<const std::byte> file, const std::string& where,
                     const UnpickleOptions& options) {
  read(file, where, options);
}

void TorchFile::read(std::span<const std::byte> file, const std::string& where, UnpickleOptions options) {
  options.torch_storages = true;
  if (looks_like_zip(file)) return read_zip(file, where, options);
  if (legacy_mark(file)) return read_legacy(file, where, options);
  fail("[{}] expected a file that torch.save wrote, got something that begins with neither of its marks",
       where);
}

void TorchFile::read_zip(std::span<const std::byte> file, const std::string& where,
                         const UnpickleOptions& options) {
  const ZipArchive archive(file, where);
  // Everything is below one folder, named after the file when it was saved.
  std::string folder;
  for (const auto& [name, member] : archive.members())
    if (name == "data.pkl" || name.ends_with("/data.pkl")) {
      folder = name.substr(0, name.size() - std::strlen("data.pkl"));
      break;
    }
  require(archive.find(folder + "data.pkl") != nullptr,
          "[{}] a zip archive, but not one that torch.save wrote: it has no data.pkl", where);
  require(archive.find(folder + "constants.pkl") == nullptr,
          "[{}] a TorchScript program, which is code; try torch.save of its state_dict()", where);
  if (archive.find(folder + "byteorder") != nullptr) {
    const auto order = archive.checked(folder + "byteorder");
    require(std::string_view(reinterpret_cast<const char*>(order.data()), order.size()) == "little",
            "[{}] was written on a big-endian machine, which is not supported", where);
  }
  tree_ = unpickle(archive.checked(folder + "data.pkl"), where, options);
  tree_.bind([&](const PickleStorage& storage) { return archive.checked(folder + "data/" + storage.key); },
             where);
}

void TorchFile::read_legacy(std::span<const std::byte> file, const std::string& where,
                            const UnpickleOptions& options) {
  legacy_ = true;
  size_t at = sizeof(kLegacyMark);
  require(at < file.size() && file[at] == std::byte{'.'}, "[{}] damaged: its first pickle does not end",
          where);
  ++at;
  const auto next = [&](const UnpickleOptions& how) {
    PickleTree tree = unpickle(file.subspan(at), where, how);
    at += tree.consumed();
    return tree;
  };
  const PickleTree protocol = next({});
  require(protocol.root().integer() == 1001, "[{}] expected torch's file protocol 1001, got another one",
          where);
  const PickleTree machine = next({});
  if (const PickleValue* little = machine.root().find("little_endian"))
    require(little->integer() == 1, "[{}] was written on a big-endian machine, which is not supported",
            where);
  tree_ = next(options);
  const PickleTree keys = next({});
  require(keys.root().items() != nullptr, "[{}] damaged: its list of storages is not a list", where);

  // After the pickles: each storage as its number of elements and then its bytes.
  std::map<std::string, const PickleStorage*> wanted;
  for (const PickleStorage& storage : tree_.storages()) wanted[storage.key] = &storage;
  std::map<std::string, std::span<const std::byte>> found;
  for (const PickleValue* key : *keys.root().items()) {
    const std::string* text = key->text();
    require(text != nullptr && wanted.contains(*text),
            "[{}] damaged: a storage in its list belongs to no tensor", where);
    int64_t elements = 0;
    require(file.size() - at >= 8, "[{}] truncated: storage '{}' is missing", where, printable(*text));
    std::memcpy(&elements, file.data() + at, 8);
    at += 8;
    const auto width = static_cast<int64_t>(wanted[*text]->element_bytes);
    require(elements >= 0 && elements <= static_cast<int64_t>(file.size() - at) / width,
            "[{}] truncated: storage '{}' has {} elements of {} bytes, the file has {} bytes left", where,
            printable(*text), elements, width, file.size() - at);
    found[*text] = file.subspan(at, static_cast<size_t>(elements * width));
    at += static_cast<size_t>(elements * width);
  }
  tree_.bind(
      [&](const PickleStorage& storage) {
        const auto place = found.find(storage.key);
        require(place != found.end(), "[{}] damaged: storage '{}' is not in the file", where,
                printable(storage.key));
        return place->second;
      },
      where);
}

PickleFile::PickleFile(const std::string& path, const UnpickleOptions& options) {
  MappedFile file(path);
  mapping_ = file.owner;
  // zlib, gzip, xz, bzip2, lz4 and joblib's own old mark.
  const std::string_view begin(reinterpret_cast<const char*>(file.bytes.data()),
                               std::min<size_t>(file.bytes.size(), 4));
  bool compressed = false;
  for (const std::string_view mark : {"\x78", "\x1f\x8b",
                                      "\xfd"
                                      "7zX",
                                      "BZh", "\x04\x22\x4d\x18", "ZF"})
    compressed = compressed || begin.starts_with(mark);
  require(!compressed, "[{}] a compressed pickle; try `joblib.dump(joblib.load(path), path, compress=0)`",
          path);
  require(!looks_like_torch_file(file.bytes), "[{}] expected a bare pickle, got a file that torch.save wrote",
          path);
  tree_ = unpickle(file.bytes, path, options);
}

}  // namespace melete
