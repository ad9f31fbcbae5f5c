// Who has connected to the studio. A request gets a thread when its headers are complete, not before: until
// then all connections wait in one thread, which bounds how long headers may take and how large they may be.
// A connection that is kept for its next request waits there, too.
#pragma once

#include <httplib.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace melete {

struct ConnectionLimits {
  double header_seconds = 5;
  double body_seconds = 60;
  // That a client lets its answer wait, and the time that what it has read takes at this rate.
  double answer_seconds = 30, answer_bytes_per_second = 8 << 10;
  size_t header_bytes = 32 << 10, body_bytes = 64 << 20;
  // For the next request to begin: longer than the 5 s that clients are told, so that none is just being
  // sent.
  double idle_seconds = 30;
};

// As httplib reads from it and writes to it.
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, ConnectionLimits limits);
  ~Connection() override;

  // For the thread that waits. Takes what has come; false: it is of no use any more.
  bool collect();
  bool has_headers() const { return header_end_ > 0; }
  // What is to be said to one that is too slow or too large; nullptr: it may go on.
  const char* refusal() const;
  void end(const char* last_word);  // collect() throws away what still comes, so that the answer is read

  // For the thread that answers.
  void begin_request();
  bool is_last() const { return requests_left_ <= 1; }
  // Whether all of the request was read and nothing else: bytes of a body that nobody wanted must never be
  // taken for a request. Then the next one begins.
  bool next_request(const std::string& content_length, bool chunked);

  // Which of these httplib's Stream has depends on its version, so that none can say `override`.
  bool is_readable() const;
  bool wait_readable() const;
  bool is_writable() const;
  bool wait_writable() const;
  bool is_peer_alive() const;
  ssize_t read(char* into, size_t size);
  ssize_t write(const char* from, size_t size);
  void get_remote_ip_and_port(std::string&, int&) const {}
  void get_local_ip_and_port(std::string&, int&) const {}
  socket_t socket() const { return socket_; }
  time_t duration() const;

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_since(Clock::time_point time) const;
  bool wait(short event, double seconds) const;

  int socket_;
  ConnectionLimits limits_;
  std::string bytes_;        // received
  size_t at_ = 0;            // that were read of them
  size_t header_end_ = 0;    // 0: not there yet
  size_t read_ = 0;          // of this request, headers and body
  size_t written_ = 0;       // of its answer
  mutable double held_ = 0;  // seconds that the answer had to wait for its reader
  Clock::time_point since_;  // of waiting, then of the request
  bool ending_ = false;
  int requests_left_;
};

class Connections final : public httplib::TaskQueue {
 public:
  // Answers one request; true where the connection can be asked again.
  using Answer = std::function<bool(Connection&)>;
  Connections(ConnectionLimits limits, Answer answer);

  void take(int socket);
  // bool in younger versions of httplib: whether there was room. Tasks here only take() a connection.
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>()));
  Enqueued enqueue(std::function<void()> task) override {
    task();
    return Enqueued(true);
  }
  void shutdown() override;

 private:
  using Held = std::unique_ptr<Connection>;
  void wait_for_headers();
  void work();
  void wait_again(Held connection);

  ConnectionLimits limits_;
  Answer answer_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::list<Held> coming_;  // to the thread that waits
  std::deque<Held> ready_;  // with headers
  int wake_ = -1;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// httplib's server over these connections.
class BoundedServer final : public httplib::Server {
 public:
  explicit BoundedServer(ConnectionLimits limits);

 private:
  bool process_and_close_socket(socket_t socket) override;
  template <class Stream>
  bool answer(Stream& connection);

  Connections* connections_ = nullptr;  // of the time that it listens
};

}  // namespace melete
