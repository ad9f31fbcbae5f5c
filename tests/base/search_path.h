// Which programs a test finds: PATH is set for its lifetime.
#pragma once

#include <cstdlib>
#include <string>

namespace melete::testing {

class SearchPath {
 public:
  explicit SearchPath(const std::string& folders) : before_(std::getenv("PATH")) {
    ::setenv("PATH", folders.c_str(), 1);
  }
  ~SearchPath() { ::setenv("PATH", before_.c_str(), 1); }
  SearchPath(const SearchPath&) = delete;
  SearchPath& operator=(const SearchPath&) = delete;

 private:
  std::string before_;
};

}  // namespace melete::testing
