#include "studio/server.h"

#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/version.h"
#include "studio/connections.h"
#include "studio/page.h"
#include "studio/routes.h"
#include "studio/run_files.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr int kListenFor = 128;  // connections that are not accepted yet

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
  if (fits && !soon) reply_error(response, 408, fmt::format("expected all of it within {} s", most_seconds));
  return fits && soon;
}

struct Studio::Parts {
  explicit Parts(StudioOptions options) : studio(std::move(options)), server(limits()) {}
  ConnectionLimits limits() const {
    // A moment more than a body has: who sends one too slowly is told so, and then not read any more.
    return {.header_seconds = studio.options.header_seconds,
            .body_seconds = studio.options.body_seconds + 1,
            .answer_seconds = studio.options.answer_seconds,
            .answer_bytes_per_second = studio.options.answer_bytes_per_second,
            .body_bytes = kLargestUpload};
  }
  StudioParts studio;
  BoundedServer server;
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
  ::listen(listening, kListenFor);  // it asks for room for 5, and a page alone opens 6 connections
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
