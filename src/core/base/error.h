// Errors that a person can act on: "[where] expected ..., got ...; try ...".
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace melete {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The words of a command were wrong; the program exits with 2 instead of 1.
class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(format, std::forward<Args>(args)...);
}

}  // namespace melete
