#include "dist/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>

#include "core/base/error.h"
#include "dist/backend.h"
#include "dist/store_options.h"

extern char** environ;

namespace melete {

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> signal_caught{0};
std::atomic<int> signals_caught{0};

void catch_signal(int signal) {
  signal_caught = signal;
  ++signals_caught;
}

struct Child {
  pid_t process = -1;
  int pipe = -1;
  bool running = true;
  std::string partial, last_line;
};

std::vector<std::string> environment_of(int64_t rank, int64_t size, int64_t port) {
  const std::map<std::string, std::string> own = {{"RANK", std::to_string(rank)},
                                                  {"WORLD_SIZE", std::to_string(size)},
                                                  {"LOCAL_RANK", std::to_string(rank)},
                                                  {"LOCAL_WORLD_SIZE", std::to_string(size)},
                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                  {"MASTER_PORT", std::to_string(port)},
                                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                  {"TORCHELASTIC_RUN_ID", "melete"}};
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (own.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything is made ready before fork(): between it and execve() only a few calls are safe.
Child start(const LaunchOptions& options, const std::string& program, int64_t rank, int64_t port) {
  std::vector<std::string> words{program}, environment = environment_of(rank, options.processes, port);
  words.insert(words.end(), options.words.begin(), options.words.end());
  const std::vector<char*> arguments = pointers_to(words), variables = pointers_to(environment);
  int ends[2];
  const bool piped = ::pipe2(ends, O_CLOEXEC) == 0;  // before its reason is read
  require(piped, "[procs] no pipe for rank {}: {}", rank, std::strerror(errno));
  const pid_t parent = ::getpid();
  Child child;
  child.process = ::fork();
  require(child.process >= 0, "[procs] rank {} cannot be started: {}", rank, std::strerror(errno));
  if (child.process == 0) {
    ::setpgid(0, 0);  // a terminal's Ctrl-C comes through us, once
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    if (rank > 0) ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::execve(program.c_str(), arguments.data(), variables.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  child.pipe = ends[0];
  ::fcntl(child.pipe, F_SETFL, O_NONBLOCK);
  return child;
}

void read_lines(Child& child, int64_t rank, const LaunchOptions& options) {
  char buffer[4096];
  while (child.pipe >= 0) {
    const ssize_t count = ::read(child.pipe, buffer, sizeof buffer);
    if (count < 0) return;  // nothing more for now
    if (count == 0) {
      ::close(child.pipe);
      child.pipe = -1;
      if (!child.partial.empty()) child.partial += '\n';
    }
    child.partial.append(buffer, static_cast<size_t>(count));
    for (size_t end; (end = child.partial.find('\n')) != std::string::npos; child.partial.erase(0, end + 1)) {
      const std::string line = child.partial.substr(0, end);
      if (line.empty()) continue;
      if (line.find("melete:") != std::string::npos || child.last_line.empty()) child.last_line = line;
      if (options.on_line) options.on_line(rank, line);
    }
  }
}

std::string program_path() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  require(length > 0, "[procs] this program cannot find itself in /proc; try torchrun or mpirun");
  return {path, static_cast<size_t>(length)};
}

}  // namespace

LaunchResult launch(const LaunchOptions& options) {
  require(options.processes >= 1, "[procs] expected 1 process or more, got {}", options.processes);
  c10d::TCPStoreOptions store_options;
  store_options.port = 0;  // whichever is free
  store_options.isServer = true;
  store_options.waitWorkers = false;
  without_libuv(store_options);
  const c10d::TCPStore store("127.0.0.1", store_options);

  signal_caught = 0;
  signals_caught = 0;
  std::map<int, struct sigaction> before;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    action.sa_handler = catch_signal;
    ::sigaction(signal, &action, &before[signal]);
  }
  const std::string program = program_path();
  std::vector<Child> children;
  for (int64_t rank = 0; rank < options.processes; ++rank)
    children.push_back(start(options, program, rank, store.getPort()));
  const auto send = [&](int signal) {
    for (const Child& child : children)
      if (child.running) ::kill(child.process, signal);
  };

  LaunchResult result;
  int forwarded = 0, pushes = 0;
  Clock::time_point next_push = Clock::time_point::max();
  size_t running = children.size();
  while (running > 0) {
    std::vector<pollfd> polled;
    for (const Child& child : children)
      if (child.pipe >= 0) polled.push_back({child.pipe, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 50);
    for (size_t i = 0; i < children.size(); ++i) read_lines(children[i], static_cast<int64_t>(i), options);
    for (; forwarded < signals_caught; ++forwarded) send(signal_caught);
    for (size_t i = 0; i < children.size(); ++i) {
      Child& child = children[i];
      int status = 0;
      if (!child.running || ::waitpid(child.process, &status, WNOHANG) != child.process) continue;
      child.running = false;
      --running;
      read_lines(child, static_cast<int64_t>(i), options);
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (WIFSIGNALED(status) && pushes == 0 && result.code != 0 && options.on_line)
        options.on_line(static_cast<int64_t>(i), fmt::format("killed by signal {}", WTERMSIG(status)));
      if (code == 0 || result.code != 0) continue;
      result.code = code;
      if (code == 130) continue;  // stopped by a person, after a checkpoint
      const std::string said = child.last_line.empty() ? "" : ": " + child.last_line;
      result.reason = WIFSIGNALED(status) ? fmt::format("rank {} was killed by signal {} ({})", i,
                                                        WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                                          : fmt::format("rank {} ended with code {}{}", i, code, said);
      next_push = Clock::now() + milliseconds(options.grace_seconds);
    }
    // The others should end by themselves and say why; whoever does not is asked, then made to.
    if (Clock::now() >= next_push) {
      send(pushes++ == 0 ? SIGTERM : SIGKILL);
      next_push = Clock::now() + std::chrono::seconds(2);
    }
  }
  for (size_t i = 0; i < children.size(); ++i) read_lines(children[i], static_cast<int64_t>(i), options);
  for (auto& [signal, action] : before) ::sigaction(signal, &action, nullptr);
  return result;
}

}  // namespace melete
