// One function for each reader that takes bytes from outside: it reads or refuses with melete::Error, and
// nothing else may happen. libFuzzer calls them through fuzz_main.cpp, hostile_test with mutated files of
// tests/corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace melete::fuzz {

struct Target {
  std::string name;  // also the folder of its corpus
  // True when the bytes were accepted.
  bool (*run)(std::span<const std::byte> bytes);
};

const std::vector<Target>& targets();

}  // namespace melete::fuzz
