#include "io/base/ffmpeg.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/find_program.h"

extern char** environ;

namespace melete {

namespace fs = std::filesystem;

namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

int open_nameless() {
  std::error_code ignored;
  const std::string folder = fs::temp_directory_path(ignored).string();
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0) return descriptor;
  std::string name = folder + "/melete-XXXXXX";  // file systems that do not know nameless files
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  require(named >= 0, "[audio] cannot make a temporary file in {}: {}; try another TMPDIR", folder,
          std::strerror(errno));
  ::unlink(name.c_str());
  return named;
}

// The child's output and messages go to two files. It is not waited for.
pid_t start(const std::string& program, const std::vector<std::string>& words, int output, int messages) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, messages, STDERR_FILENO);
  pid_t child = 0;
  const int problem = ::posix_spawn(&child, program.c_str(), &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  require(problem == 0, "[audio] cannot start {}: {}", program, std::strerror(problem));
  return child;
}

int64_t size_of(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? static_cast<int64_t>(status.st_size) : 0;
}

// The last line that it said, without the file's name at its front.
std::string last_words(int messages, const std::string& name) {
  constexpr int64_t kMost = 2000;
  std::string text(kMost, '\0');
  const ssize_t got =
      ::pread(messages, text.data(), text.size(), std::max<int64_t>(0, size_of(messages) - kMost));
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  std::string line = text.substr(text.find_last_of("\r\n") + 1);
  if (line.starts_with(name + ": ")) line = line.substr(name.size() + 2);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return line.empty() ? "no reason given" : line.substr(0, 300);
}

enum class Ending { well, badly, too_long, too_large };

// A child that does not end, or writes without end, is ended.
Ending wait_for(pid_t child, int output, const FfmpegLimits& limits) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(limits.seconds);
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    const bool large = size_of(output) > limits.bytes;
    if (ended == child)
      return large                                           ? Ending::too_large
             : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Ending::well
                                                             : Ending::badly;
    if (ended < 0 && errno != EINTR) return Ending::badly;
    const bool late = Clock::now() > deadline;
    if (large || late) {
      ::kill(child, SIGKILL);
      while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
      return large ? Ending::too_large : Ending::too_long;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
}

}  // namespace

std::string find_ffmpeg() {
  return find_program("ffmpeg");
}

int decode_with_ffmpeg(const std::string& path, const FfmpegLimits& limits) {
  const std::string program = find_ffmpeg();
  require(!program.empty(),
          "[audio] {} needs the program ffmpeg, which is not installed; try: apt install ffmpeg", path);
  Descriptor output(open_nameless()), messages(open_nameless());
  // A name that begins with a dash, or looks like an address, stays a name.
  const std::string name = "file:" + fs::absolute(path).string();
  const pid_t child = start(program, {"ffmpeg",
                                      "-nostdin",
                                      "-hide_banner",
                                      "-loglevel",
                                      "error",
                                      "-threads",
                                      "1",
                                      "-protocol_whitelist",
                                      "file,pipe",
                                      "-i",
                                      name,
                                      "-map",
                                      "0:a:0",
                                      "-vn",
                                      "-sn",
                                      "-dn",
                                      "-c:a",
                                      "pcm_f32be",
                                      "-f",
                                      "au",
                                      "pipe:1"},
                            output.get(), messages.get());
  switch (wait_for(child, output.get(), limits)) {
    case Ending::well:
      break;
    case Ending::badly:
      fail("[audio] ffmpeg cannot read {}: {}", path, last_words(messages.get(), name));
    case Ending::too_long:
      fail("[audio] ffmpeg took more than {:g} s for {} and was stopped; try converting it first",
           limits.seconds, path);
    case Ending::too_large:
      fail("[audio] {} is more than {} bytes of sound; try cutting it into shorter recordings", path,
           limits.bytes);
  }
  require(size_of(output.get()) > 0, "[audio] ffmpeg gave no sound for {}", path);
  ::lseek(output.get(), 0, SEEK_SET);
  return output.release();
}

}  // namespace melete
