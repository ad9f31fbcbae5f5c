#include "studio/connections.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr size_t kThreads = 40, kMostWaiting = 128, kMostReady = 128, kPiece = 4096;
constexpr double kReadSeconds = 5, kWriteSeconds = 10, kEndSeconds = 2;
constexpr int kSendBuffer = 64 << 10;  // a larger one says late that its reader is slow
constexpr int kLookEveryMilliseconds = 100, kRequestsOfAConnection = 200;
constexpr char kTooSlow[] = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
constexpr char kTooLarge[] =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

}  // namespace

Connection::Connection(int socket, ConnectionLimits limits)
    : socket_(socket), limits_(limits), since_(Clock::now()), requests_left_(kRequestsOfAConnection) {
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
}

Connection::~Connection() {
  ::shutdown(socket_, SHUT_RDWR);
  ::close(socket_);
}

double Connection::seconds_since(Clock::time_point time) const {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

bool Connection::wait(short event, double seconds) const {
  pollfd one{socket_, event, 0};
  return ::poll(&one, 1, static_cast<int>(std::max(0.0, seconds) * 1000)) > 0;
}

bool Connection::collect() {
  char piece[kPiece];
  const ssize_t count = ::recv(socket_, piece, sizeof piece, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  if (ending_) return true;
  if (bytes_.empty()) since_ = Clock::now();
  const size_t before = bytes_.size();
  bytes_.append(piece, static_cast<size_t>(count));
  const size_t end = bytes_.find("\r\n\r\n", before - std::min<size_t>(before, 3));
  if (end != std::string::npos) header_end_ = end + 4;
  return true;
}

const char* Connection::refusal() const {
  if (ending_) return seconds_since(since_) > kEndSeconds ? "" : nullptr;
  if (bytes_.size() > limits_.header_bytes) return kTooLarge;
  // To one that has asked nothing, nothing is said.
  if (bytes_.empty()) return seconds_since(since_) > limits_.idle_seconds ? "" : nullptr;
  return seconds_since(since_) > limits_.header_seconds ? kTooSlow : nullptr;
}

void Connection::end(const char* last_word) {
  (void)!::send(socket_, last_word, std::strlen(last_word), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket_, SHUT_WR);
  bytes_.clear();
  header_end_ = 0;
  ending_ = true;
  since_ = Clock::now();
}

void Connection::begin_request() {
  since_ = Clock::now();
  read_ = written_ = 0;
  held_ = 0;
}

bool Connection::next_request(const std::string& content_length, bool chunked) {
  const size_t whole = header_end_ + std::strtoull(content_length.c_str(), nullptr, 10);
  if (chunked || read_ != whole || --requests_left_ <= 0) return false;
  bytes_.erase(0, at_);
  at_ = 0;
  const size_t end = bytes_.find("\r\n\r\n");
  header_end_ = end == std::string::npos ? 0 : end + 4;
  since_ = Clock::now();
  return true;
}

bool Connection::is_readable() const {
  return at_ < bytes_.size();
}
bool Connection::wait_readable() const {
  return is_readable() || wait(POLLIN, kReadSeconds);
}
bool Connection::is_writable() const {
  return wait_writable() && is_peer_alive();
}
bool Connection::wait_writable() const {
  const double left =
      limits_.answer_seconds + static_cast<double>(written_) / limits_.answer_bytes_per_second - held_;
  const auto begin = Clock::now();
  const bool writable = left > 0 && wait(POLLOUT, std::min(left, kWriteSeconds));
  held_ += seconds_since(begin);
  return writable;
}
bool Connection::is_peer_alive() const {
  char byte;
  return !wait(POLLIN, 0) || ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

ssize_t Connection::read(char* into, size_t size) {
  if (at_ >= bytes_.size()) {
    const double left = limits_.body_seconds - seconds_since(since_);
    if (left <= 0 || read_ > limits_.header_bytes + limits_.body_bytes ||
        !wait(POLLIN, std::min(left, kReadSeconds)))
      return -1;
    bytes_.resize(kPiece);
    const ssize_t count = ::recv(socket_, bytes_.data(), bytes_.size(), 0);
    bytes_.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    at_ = 0;
    if (count <= 0) return count;
  }
  const size_t count = std::min(size, bytes_.size() - at_);
  std::memcpy(into, bytes_.data() + at_, count);
  at_ += count;
  read_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* from, size_t size) {
  if (!wait_writable()) return -1;
  const ssize_t count = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);  // what fits: else it waits
  written_ += static_cast<size_t>(std::max<ssize_t>(count, 0));
  return count;
}

time_t Connection::duration() const {
  return static_cast<time_t>(seconds_since(since_) * 1000);
}

Connections::Connections(ConnectionLimits limits, Answer answer)
    : limits_(limits), answer_(std::move(answer)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  require(wake_ >= 0, "[studio] no event: {}", std::strerror(errno));
  threads_.emplace_back([this] { wait_for_headers(); });
  for (size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
}

void Connections::take(int socket) {
  {
    std::unique_lock lock(mutex_);  // when too many are ready, no more are accepted until one is answered
    news_.wait(lock, [this] { return stop_ || ready_.size() < kMostReady; });
  }
  wait_again(std::make_unique<Connection>(socket, limits_));
}

void Connections::wait_again(Held connection) {
  const std::lock_guard lock(mutex_);
  if (connection->has_headers()) {
    ready_.push_back(std::move(connection));
    news_.notify_all();
  } else {
    coming_.push_back(std::move(connection));
    ::eventfd_write(wake_, 1);
  }
}

void Connections::wait_for_headers() {
  std::list<Held> waiting;
  std::vector<pollfd> polled;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      waiting.splice(waiting.end(), coming_);
    }
    while (waiting.size() > kMostWaiting) waiting.pop_front();  // who has waited longest makes room
    polled.assign(1, {wake_, POLLIN, 0});
    for (const Held& one : waiting) polled.push_back({one->socket(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), kLookEveryMilliseconds);
    eventfd_t ignored;
    ::eventfd_read(wake_, &ignored);
    auto state = polled.begin() + 1;
    for (auto one = waiting.begin(); one != waiting.end(); ++state) {
      Connection& connection = **one;
      const bool useful = state->revents == 0 || connection.collect();
      if (useful && connection.has_headers()) {
        wait_again(std::move(*one));
      } else if (useful) {
        const char* word = connection.refusal();
        if (word && *word) connection.end(word);
        if (!word || *word) {
          ++one;
          continue;
        }
      }
      one = waiting.erase(one);
    }
  }
}

void Connections::work() {
  while (true) {
    Held connection;
    {
      std::unique_lock lock(mutex_);
      news_.wait(lock, [this] { return stop_ || !ready_.empty(); });
      if (stop_) return;
      connection = std::move(ready_.front());
      ready_.pop_front();
    }
    news_.notify_all();
    connection->begin_request();
    if (!answer_(*connection)) connection->end("");
    wait_again(std::move(connection));
  }
}

void Connections::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  news_.notify_all();
  ::eventfd_write(wake_, 1);
  for (std::thread& thread : threads_) thread.join();
  coming_.clear();
  ready_.clear();
  ::close(wake_);
}

BoundedServer::BoundedServer(ConnectionLimits limits) {
  set_keep_alive_max_count(kRequestsOfAConnection);  // what clients are told
  new_task_queue = [this, limits] {
    return connections_ = new Connections(limits, [this](Connection& one) { return answer(one); });
  };
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  connections_->take(socket);
  return true;
}

template <class Stream>
bool BoundedServer::answer(Stream& connection) {
  std::string length;
  bool chunked = false, closed = false;
  const std::function<void(httplib::Request&)> look = [&](httplib::Request& request) {
    length = request.get_header_value("Content-Length");
    chunked = request.has_header("Transfer-Encoding");
  };
  bool good;
  if constexpr (requires { this->process_request(connection, true, closed, look); })
    good = this->process_request(connection, connection.is_last(), closed, look);
  else  // younger: addresses, which nobody asks for
    good = this->process_request(connection, "", 0, "", 0, connection.is_last(), closed, look);
  return good && !closed && connection.next_request(length, chunked);
}

}  // namespace melete
