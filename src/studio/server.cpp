#include "studio/server.h"

#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/version.h"
#include "studio/page.h"
#include "studio/routes.h"
#include "studio/run_files.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kThreads = 40, kMostWaiting = 128;
constexpr int kReadSeconds = 5, kWriteSeconds = 5, kKeepAliveSeconds = 5, kRequestsOfAConnection = 200;

// A fixed number of threads; when too many connections wait, no more are accepted until one is served.
class BoundedQueue final : public httplib::TaskQueue {
 public:
  BoundedQueue() {
    for (size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
  }
  // bool in younger versions of the library: whether there was room
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>()));
  Enqueued enqueue(std::function<void()> task) override {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [this] { return stop_ || waiting_.size() < kMostWaiting; });
    waiting_.push_back(std::move(task));
    news_.notify_all();
    return Enqueued(true);
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    news_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void work() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      news_.notify_all();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> waiting_;
  std::list<std::thread> threads_;
  bool stop_ = false;
};

fs::path real_folder(const std::string& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  require(!error && fs::is_directory(real),
          "[studio] expected a folder of runs, got {}; try melete studio runs", folder);
  return real;
}

}  // namespace

StudioParts::StudioParts(StudioOptions given)
    : options(std::move(given)),
      root(real_folder(options.folder)),
      shown(options.folder),
      index(root),
      blind(root / kStudioFolder / "blind") {
  if (!shown.has_filename() && shown.has_relative_path()) shown = shown.parent_path();  // "runs/" -> "runs"
  if (options.program.empty() || options.tools.empty()) return;
  jobs = std::make_unique<JobQueue>(options.program, shown / kStudioFolder / "made", options.jobs);
  jobs->on_change = [this] { ++jobs_version; };
}

void reply_json(httplib::Response& response, const ordered_json& value, int status) {
  response.status = status;
  response.set_content(value.dump(-1, ' ', false, ordered_json::error_handler_t::replace),
                       "application/json");
}

void reply_error(httplib::Response& response, int status, const std::string& message) {
  reply_json(response, {{"error", {{"message", message}, {"code", status}}}}, status);
}

namespace {

// To a body that comes too slowly. Younger versions of httplib would read the rest of it, for as long as it
// comes, to use the connection again, and it would hold a thread. Here it counts as read, and the answer
// breaks off behind its last byte, which closes the connection.
template <class Request>
void refuse_slow_body(const Request& request, httplib::Response& response, int status,
                      const std::string& message) {
  reply_error(response, status, message);
  if constexpr (requires(Request & mutable_request) { mutable_request.body_consumed_ = true; }) {
    const_cast<Request&>(request).body_consumed_ = true;
    const std::string answer = std::exchange(response.body, "");
    response.headers.erase("Content-Type");
    response.set_content_provider(answer.size(), "application/json",
                                  [answer](size_t from, size_t count, httplib::DataSink& sink) {
                                    sink.write(answer.data() + from, count);
                                    return false;
                                  });
  }
}

}  // namespace

bool read_body(const StudioParts& parts, const httplib::Request& request, httplib::Response& response,
               const httplib::ContentReader& reader, size_t most_bytes, std::string& body) {
  if (request.is_multipart_form_data()) {
    reply_error(response, 415, "send the bytes themselves, not a form");
    return false;
  }
  bool fits = true, soon = true;
  const double most_seconds = parts.options.body_seconds;
  const auto latest = std::chrono::steady_clock::now() + std::chrono::duration<double>(most_seconds);
  reader([&](const char* data, size_t count) {
    fits = body.size() + count <= most_bytes;
    soon = std::chrono::steady_clock::now() < latest;
    if (fits && soon) body.append(data, count);
    return fits && soon;
  });
  if (!fits) reply_error(response, 413, fmt::format("expected at most {} bytes", most_bytes));
  if (fits && !soon)
    refuse_slow_body(request, response, 408, fmt::format("expected all of it within {} s", most_seconds));
  return fits && soon;
}

struct Studio::Parts {
  explicit Parts(StudioOptions options) : studio(std::move(options)) {}
  StudioParts studio;
  httplib::Server server;
  int port = 0;
};

Studio::Studio(StudioOptions options) {
  if (!is_loopback(options.address) && options.token.empty())
    throw UsageError(fmt::format(
        "an address that others can reach ({}) needs --token SECRET, which the page is then opened with",
        options.address));
  parts_ = std::make_unique<Parts>(std::move(options));
  StudioParts& studio = parts_->studio;
  httplib::Server& server = parts_->server;
  server.new_task_queue = [] { return new BoundedQueue; };
  server.set_read_timeout(kReadSeconds);
  server.set_write_timeout(kWriteSeconds);
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  server.set_keep_alive_max_count(kRequestsOfAConnection);
  server.set_payload_max_length(kLargestUpload);
  server.set_tcp_nodelay(true);
  int listening = -1;
  server.set_socket_options(
      [&listening](int socket) {  // SO_REUSEPORT, its default, would let two studios share a port
        const int yes = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        listening = socket;
      });
  server.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cache-Control", "no-cache"},
                              {"Cross-Origin-Resource-Policy", "same-origin"},
                              {"Content-Security-Policy",
                               "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' "
                               "'unsafe-inline'; img-src 'self' data: "
                               "blob:; media-src 'self' data: blob:; connect-src 'self' data: blob:; "
                               "frame-ancestors 'none'; base-uri 'none'"}});

  server.set_pre_routing_handler([&studio](const httplib::Request& request, httplib::Response& response) {
    // Neither ranges nor compression: answers are small and near, and both have been the way into servers.
    auto& asked = const_cast<httplib::Request&>(request);
    asked.ranges.clear();
    asked.headers.erase("Accept-Encoding");
    const AccessDecision decision = decide_access(
        studio.access, [&](const char* name) { return request.get_header_value(name); },
        [&](const char* name) { return request.get_param_value(name); });
    if (decision.status != 200) {
      reply_error(response, decision.status, decision.reason);
      return httplib::Server::HandlerResponse::Handled;
    }
    if (decision.set_cookie)
      response.set_header("Set-Cookie",
                          "melete_studio=" + studio.access.token + "; Path=/; HttpOnly; SameSite=Strict");
    return httplib::Server::HandlerResponse::Unhandled;
  });
  server.set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, std::exception_ptr thrown) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& error) {
          reply_error(response, 400, error.what());
        } catch (const std::exception& error) {
          reply_error(response, 500, error.what());
        } catch (...) {
          reply_error(response, 500, "unknown error");
        }
      });
  server.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) reply_error(response, response.status, "this cannot be answered");
  });

  const auto page = [](const httplib::Request&, httplib::Response& response) {
    const std::string_view html = studio_page();
    response.set_content(html.data(), html.size(), "text/html; charset=utf-8");
  };
  server.Get("/", page);
  server.Get("/api/status", [&studio](const httplib::Request&, httplib::Response& response) {
    reply_json(response, {{"version", version()},
                          {"folder", studio.shown.string()},
                          {"can_make", studio.jobs != nullptr},
                          {"pages", studio.listeners.load()}});
  });
  add_run_routes(server, studio);
  add_play_routes(server, studio);
  add_speech_routes(server, studio);

  const int wanted = studio.options.port;
  parts_->port = wanted == 0 ? server.bind_to_any_port(studio.options.address)
                 : server.bind_to_port(studio.options.address, wanted) ? wanted
                                                                       : -1;
  require(parts_->port > 0,
          "[studio] {} port {} cannot be used: another program has it, or the address is not of this "
          "machine; try --port {}",
          studio.options.address, wanted, wanted + 1);
  ::listen(listening, kMostWaiting);  // it asks for room for 5, and a page alone opens 6 connections
  server.set_socket_options([](int) {});
  studio.access = {studio.options.address, parts_->port, studio.options.token};
}

Studio::~Studio() {
  stop();
}

int Studio::port() const {
  return parts_->port;
}

std::string Studio::url() const {
  const StudioOptions& options = parts_->studio.options;
  const std::string host =
      options.address.find(':') == std::string::npos ? options.address : "[" + options.address + "]";
  return fmt::format("http://{}:{}/{}", host, parts_->port,
                     options.token.empty() ? "" : "?token=" + options.token);
}

void Studio::serve() {
  parts_->studio.index.follow();
  parts_->server.listen_after_bind();
}

void Studio::stop() {
  parts_->studio.stopping = true;
  parts_->studio.index.wake();
  parts_->server.stop();
}

}  // namespace melete
