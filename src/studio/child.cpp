#include "studio/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr size_t kLongestLine = 8000;

}  // namespace

Child::Child(const std::string& program, const std::vector<std::string>& words, int64_t memory_bytes) {
  int output[2], input[2];
  require(::pipe2(output, O_CLOEXEC) == 0, "[job] no pipe: {}", std::strerror(errno));
  // A socket, because writing to a pipe whose reader is gone would end this program.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) {
    for (const int end : output) ::close(end);
    fail("[job] no socket: {}", std::strerror(errno));
  }
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const std::string& one : words) arguments.push_back(const_cast<char*>(one.c_str()));
  arguments.push_back(nullptr);
  process_ = ::fork();
  if (process_ == 0) {  // only calls that are safe between fork and exec of a program with threads
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    if (memory_bytes > 0) {
      const rlimit limit{static_cast<rlim_t>(memory_bytes), static_cast<rlim_t>(memory_bytes)};
      ::setrlimit(RLIMIT_DATA, &limit);
    }
    (void)!::nice(5);
    ::dup2(input[1], 0);
    ::dup2(output[1], 1);
    ::dup2(output[1], 2);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  ::close(output[1]);
  ::close(input[1]);
  output_ = output[0];
  input_ = input[0];
  if (process_ < 0) {
    const int reason = errno;
    ::close(output_);
    ::close(input_);
    fail("[job] cannot be started: {}", std::strerror(reason));
  }
  ::setpgid(process_, process_);
}

Child::~Child() {
  if (process_ > 0) {
    kill();
    wait();
  }
  ::close(output_);
  ::close(input_);
}

void Child::tell(const std::string& line) {
  const std::string bytes = line + "\n";
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(input_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    require(count > 0, "[job] it does not listen: {}", std::strerror(errno));
    sent += static_cast<size_t>(count);
  }
}

void Child::tell_no_more() {
  ::shutdown(input_, SHUT_RDWR);
}

bool Child::read(int milliseconds, const std::function<void(const std::string& line)>& take) {
  pollfd ready{output_, POLLIN, 0};
  ::poll(&ready, 1, milliseconds);
  if ((ready.revents & (POLLIN | POLLHUP)) == 0) return true;
  char buffer[4096];
  const ssize_t count = ::read(output_, buffer, sizeof buffer);
  if (count < 0 && errno == EINTR) return true;
  for (ssize_t i = 0; i < count; ++i) {
    if (buffer[i] != '\n' && buffer[i] != '\r') {
      if (pending_.size() < kLongestLine) pending_ += buffer[i];
    } else if (!pending_.empty()) {
      take(pending_);
      pending_.clear();
    }
  }
  if (count > 0) return true;
  if (!pending_.empty()) take(pending_);
  pending_.clear();
  return false;
}

void Child::kill() {
  if (process_ > 0) ::kill(-process_, SIGKILL);
}

int Child::wait() {
  int status = 0;
  if (process_ > 0)
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
  process_ = -1;
  return status;
}

}  // namespace melete
