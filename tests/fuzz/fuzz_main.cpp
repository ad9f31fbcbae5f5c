// The entry that libFuzzer calls; MELETE_FUZZ_TARGET says which reader.
#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const melete::fuzz::Target* const target = [] {
    for (const auto& row : melete::fuzz::targets())
      if (row.name == MELETE_FUZZ_TARGET) return &row;
    __builtin_trap();
  }();
  target->run({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
