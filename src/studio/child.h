// A program that the studio started: in a process group of its own, so that ending it reaches all that it
// starts; what it prints is read line by line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace melete {

class Child {
 public:
  // memory_bytes: that it may have; 0: no limit. An Error where it cannot be started.
  Child(const std::string& program, const std::vector<std::string>& words, int64_t memory_bytes);
  ~Child();  // ends it
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void tell(const std::string& line);  // to its standard input; an Error where nobody reads it
  void tell_no_more();                 // its standard input is at an end
  // Waits at most so long for output. False when there will be no more.
  bool read(int milliseconds, const std::function<void(const std::string& line)>& take);
  void kill();
  int wait();  // until it has ended; the status as waitpid() gives it

 private:
  pid_t process_ = -1;
  int input_ = -1, output_ = -1;  // its, from here
  std::string pending_;           // of a line
};

}  // namespace melete
