// A program in a process of its own, for tests of what a person's machine does to it.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace melete {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Ended {
  int code = -1, signal = 0;
  double seconds = 0;
  std::string output;  // both streams
};

// Ends with this object, if not before.
class Process {
 public:
  using Setup = std::function<void()>;  // in the child, before the program starts

  Process(const std::string& program, const Words& words, const std::filesystem::path& log,
          const Setup& setup = {})
      : log_(log), start_(std::chrono::steady_clock::now()) {
    Words all{program};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> pointers;
    for (std::string& word : all) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    child_ = ::fork();
    require(child_ >= 0, "[test] fork failed");
    if (child_ > 0) return;
    const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(file, 1);
    ::dup2(file, 2);
    if (setup) setup();
    ::execvp(program.c_str(), pointers.data());
    ::_exit(127);
  }
  Process(const std::string& program, const Words& words, const std::filesystem::path& log,
          const Variables& variables)
      : Process(program, words, log, [&variables] {
          for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
        }) {}
  ~Process() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      wait();
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const { ::kill(child_, signal); }
  bool running() {
    if (child_ > 0 && ::waitpid(child_, &status_, WNOHANG) == child_) child_ = -1;
    return child_ > 0;
  }
  Ended wait() {
    if (child_ > 0) ::waitpid(child_, &status_, 0);
    child_ = -1;
    Ended ended;
    if (WIFEXITED(status_)) ended.code = WEXITSTATUS(status_);
    if (WIFSIGNALED(status_)) ended.signal = WTERMSIG(status_);
    ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    ended.output = read_text(log_);
    return ended;
  }

 private:
  pid_t child_ = -1;
  int status_ = 0;
  std::filesystem::path log_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace melete
