#include "io/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr std::string_view kEnding = ".melete-tmp";

std::atomic<int64_t> fail_after{-1};
std::atomic<int> fail_error{ENOSPC};
std::atomic<uint64_t> temporary_count{0};

int64_t failure_limit() {
  static const int64_t from_environment = [] {
    const char* text = std::getenv("MELETE_FAIL_AFTER_BYTES");
    return text && *text ? std::atoll(text) : int64_t{-1};
  }();
  const int64_t set = fail_after.load();
  return set >= 0 ? set : from_environment;
}

// Replacing a link by a file would surprise its owner; the file it points to is what gets replaced.
fs::path resolve(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_symlink(path, ignored)) return path;
  const fs::path target = fs::weakly_canonical(path, ignored);
  return ignored ? fs::path(path) : target;
}

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

[[noreturn]] void fail_writing(const std::string& path, int error_number) {
  fail("[write {}] {}; nothing was changed, what was there before is still there{}", path,
       std::strerror(error_number), error_number == ENOSPC ? "; try freeing space on that disk" : "");
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(resolve(path).string()) {
  struct stat there;
  require(fs::path(path_).has_filename(), "[write {}] expected a file name, got a folder", path_);
  // A rename over a device or a folder would destroy it or fail late.
  if (::stat(path_.c_str(), &there) == 0)
    require(S_ISREG(there.st_mode),
            "[write {}] expected a regular file or nothing there, got {}; try another name", path_,
            S_ISDIR(there.st_mode) ? "a folder" : "a device or pipe");
  const std::string name = fs::path(path_).filename().string().substr(0, 200);
  do {
    temporary_ = (fs::path(folder_of(path_)) /
                  fmt::format(".{}.{}-{}{}", name, ::getpid(), temporary_count.fetch_add(1), kEnding))
                     .string();
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);  // left by a killed process that had our number
  if (descriptor_ < 0) fail_writing(path_, errno);
}

AtomicFile::~AtomicFile() {
  abandon();
}

void AtomicFile::abandon() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  descriptor_ = -1;
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require(descriptor_ >= 0, "[write {}] expected an open file, got one that was committed or has failed",
          path_);
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    write_through(bytes.data(), bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write_through(const std::byte* data, size_t size) {
  const int64_t limit = failure_limit();
  while (size > 0) {
    size_t piece = size;
    ssize_t done = -1;
    // As on a real full disk, the bytes that still fit are written before the failure.
    if (limit >= 0) piece = std::min(piece, static_cast<size_t>(std::max<int64_t>(limit - written_, 0)));
    if (piece == 0) {
      errno = fail_error.load();
    } else {
      done = ::write(descriptor_, data, piece);
      if (done < 0 && errno == EINTR) continue;
    }
    if (done <= 0) {
      const int reason = done == 0 ? EIO : errno;
      abandon();
      fail_writing(path_, reason);
    }
    data += done;
    size -= static_cast<size_t>(done);
    written_ += done;
  }
}

void AtomicFile::commit() {
  require(descriptor_ >= 0, "[write {}] expected an open file, got one that was committed or has failed",
          path_);
  flush();
  // Some disks report a full or broken device only here.
  if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    abandon();
    fail_writing(path_, reason);
  }
  ::close(descriptor_);
  descriptor_ = -1;
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // a folder that may be written but not listed; the rename itself has happened
  const int synced = ::fsync(folder);
  const int reason = errno;
  ::close(folder);
  // EINVAL: the file system has nothing to flush for folders.
  require(synced == 0 || reason == EINVAL, "[write {}] the file is there, but flushing its folder failed: {}",
          path_, std::strerror(reason));
}

void AtomicFile::fail_after_bytes(int64_t bytes, int error_number) {
  fail_error = error_number;
  fail_after = bytes;
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::vector<std::string> remove_stale_temporaries(const std::string& folder) {
  std::vector<std::string> removed;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with('.') || !name.ends_with(kEnding) || !entry.is_regular_file(error)) continue;
    if (fs::remove(entry.path(), error)) removed.push_back(entry.path().string());
  }
  return removed;
}

}  // namespace melete
