#include <chrono>
#include <fstream>

#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "io/base/audio_stream.h"
#include "io/base/opus.h"
#include "studio/curves.h"
#include "studio/routes.h"
#include "studio/run_files.h"
#include "studio/safe_path.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kLargestRequest = 1 << 20, kRowsAtOnce = 1 << 20, kMostCurves = 2000;
constexpr uintmax_t kLargestFile = 256 << 20;
constexpr int kMostListeners = 24;
constexpr double kLongestOpusSeconds = 120;
constexpr auto kTellAtMostEvery = std::chrono::milliseconds(500);

int64_t whole_param(const httplib::Request& request, const char* name, int64_t otherwise) {
  const std::string text = request.get_param_value(name);
  if (text.empty()) return otherwise;
  try {
    return std::stoll(text);
  } catch (const std::exception&) {
    fail("[{}] expected a number, got {}", name, text.substr(0, 40));
  }
}

// The folder of the run that ?run= names; an error has been replied where there is none.
std::optional<fs::path> run_folder(const StudioParts& parts, const httplib::Request& request,
                                   httplib::Response& response) {
  const std::string id = request.get_param_value("run");
  const auto folder = parts.index.has(id) ? path_inside(parts.root, id) : std::nullopt;
  if (!folder) reply_error(response, 404, "there is no such run");
  return folder;
}

std::string read_file(const fs::path& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  require(!error && fs::is_regular_file(path), "[studio] that is not a file");
  require(bytes <= kLargestFile, "[studio] the file is larger than {} bytes", kLargestFile);
  std::ifstream in(path, std::ios::binary);
  std::string content(static_cast<size_t>(bytes), '\0');
  in.read(content.data(), static_cast<std::streamsize>(bytes));
  content.resize(static_cast<size_t>(in.gcount()));
  return content;
}

void send_file(const StudioParts& parts, const std::string& relative, httplib::Response& response) {
  const auto path = path_inside(parts.root, relative);
  const std::string type = path ? content_type_of(*path) : "";
  std::error_code error;
  if (type.empty() || !fs::is_regular_file(*path, error))
    return reply_error(response, 404, "there is no such file");
  response.set_content(read_file(*path), type);
  // What a step has written does not change any more.
  if (type.starts_with("audio/") || type.starts_with("image/"))
    response.set_header("Cache-Control", "private, max-age=3600");
}

// One JSON text for all curves that were asked for: {"curves": {run: {series: curve}}}.
void send_curves(const StudioParts& parts, const ordered_json& asked, httplib::Response& response) {
  CurveRequest request;
  request.by_time = asked.value("axis", "step") == "time";
  request.points = asked.value("points", int64_t{800});
  if (asked.contains("from") && asked["from"].is_number()) request.from = asked["from"];
  if (asked.contains("to") && asked["to"].is_number()) request.to = asked["to"];
  const auto runs = asked.value("runs", std::vector<std::string>{});
  const auto series = asked.value("series", std::vector<std::string>{});
  require(runs.size() * series.size() <= kMostCurves, "[curves] expected at most {} of them", kMostCurves);
  std::string out = "{\"curves\":{";
  bool first_run = true;
  for (const std::string& id : runs)
    parts.index.read(id, [&](const RunMetrics& metrics) {
      out += (first_run ? "" : ",") + ordered_json(id).dump() + ":{";
      first_run = false;
      bool first = true;
      for (const std::string& name : series) {
        const auto [table, column] = metrics.find(name);
        if (!column) continue;
        out += (first ? "" : ",") + ordered_json(name).dump() + ":" +
               curve_json(make_curve(*table, *column, request));
        first = false;
      }
      out += "}";
    });
  response.set_content(out + "}}", "application/json");
}

// Lines of metrics.jsonl from a byte on, as they are; the header says where to go on.
void send_rows(const fs::path& run, int64_t from, httplib::Response& response) {
  std::ifstream in(run / "metrics.jsonl", std::ios::binary);
  std::string rows(kRowsAtOnce, '\0');
  in.seekg(std::max<int64_t>(from, 0));
  in.read(rows.data(), static_cast<std::streamsize>(rows.size()));
  rows.resize(in.bad() ? 0 : static_cast<size_t>(in.gcount()));
  rows.resize(rows.rfind('\n') == std::string::npos ? 0 : rows.rfind('\n') + 1);
  response.set_header("X-Next-Offset",
                      std::to_string(std::max<int64_t>(from, 0) + static_cast<int64_t>(rows.size())));
  response.set_content(rows, "text/plain; charset=utf-8");
}

// The recording as Opus makes it sound at that rate, as a wave file.
void send_through_opus(const StudioParts& parts, const httplib::Request& request,
                       httplib::Response& response) {
  const auto path = path_inside(parts.root, request.get_param_value("path"));
  if (!path || !content_type_of(*path).starts_with("audio/"))
    return reply_error(response, 404, "there is no such file");
  const int64_t kilobits = whole_param(request, "kbps", 12);
  require(kilobits >= 6 && kilobits <= 256, "[opus] expected 6 to 256 kbit/s, got {}", kilobits);
  const AudioInfo info = probe_audio(path->string());
  const Audio audio =
      read_audio(path->string(), 0,
                 std::min<int64_t>(info.frames, static_cast<int64_t>(kLongestOpusSeconds * info.rate_hz)));
  const OpusResult result = through_opus(downmix(audio), audio.rate_hz, static_cast<int>(kilobits * 1000));
  response.set_header("X-Bits-Per-Second", std::to_string(static_cast<int64_t>(result.bits_per_second)));
  response.set_content(wave_bytes(result.samples, audio.rate_hz), "audio/wav");
}

// Server-sent events: every run at first, then those that have news; a word every 10 s so that a gone page is
// noticed.
void tell(StudioParts& parts, httplib::Response& response) {
  if (parts.listeners.fetch_add(1) >= kMostListeners) {
    --parts.listeners;
    return reply_error(response, 503, "too many pages are open");
  }
  struct Told {
    uint64_t runs = 0, jobs = 0;
    std::chrono::steady_clock::time_point last{};
  };
  auto told = std::make_shared<Told>();
  response.set_chunked_content_provider(
      "text/event-stream",
      [&parts, told](size_t, httplib::DataSink& sink) {
        const auto send = [&sink](const char* event, const std::string& data) {
          const std::string text = fmt::format("event: {}\ndata: {}\n\n", event, data);
          return sink.write(text.data(), text.size());
        };
        const uint64_t now = parts.index.wait(told->runs, 250);
        if (parts.stopping || !sink.is_writable()) {
          sink.done();
          return false;
        }
        const auto clock = std::chrono::steady_clock::now();
        bool well = true;
        if (now > told->runs && clock - told->last >= kTellAtMostEvery) {
          const auto news = parts.index.changed(told->runs);
          well = send("runs", news.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
          told->runs = now;
          told->last = clock;
        } else if (clock - told->last > std::chrono::seconds(10)) {
          well = send("still", "{}");
          told->last = clock;
        } else if (now > told->runs) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        if (const uint64_t jobs = parts.jobs_version; well && parts.jobs && jobs != told->jobs) {
          told->jobs = jobs;
          well = send("jobs",
                      jobs_with_paths(parts).dump(-1, ' ', false, ordered_json::error_handler_t::replace));
        }
        return well;
      },
      [&parts](bool) { --parts.listeners; });
}

}  // namespace

void add_run_routes(httplib::Server& server, StudioParts& parts) {
  using httplib::Request;
  using httplib::Response;
  server.Get("/api/runs",
             [&parts](const Request&, Response& response) { reply_json(response, parts.index.summaries()); });
  server.Get("/api/run", [&parts](const Request& request, Response& response) {
    const ordered_json details = parts.index.details(request.get_param_value("run"));
    if (details.is_null()) return reply_error(response, 404, "there is no such run");
    reply_json(response, details);
  });
  server.Post("/api/curves", [&parts](const Request& request, Response& response,
                                      const httplib::ContentReader& reader) {
    std::string body;
    if (!read_body(parts, request, response, reader, kLargestRequest, body)) return;
    const auto asked = ordered_json::parse(body, nullptr, false);
    if (!asked.is_object()) return reply_error(response, 400, "expected a JSON object");
    try {
      send_curves(parts, asked, response);
    } catch (const nlohmann::json::exception&) {
      reply_error(response, 400, "expected runs and series as lists of texts, points as a number");
    }
  });
  server.Get("/api/rows", [&parts](const Request& request, Response& response) {
    if (const auto folder = run_folder(parts, request, response))
      send_rows(*folder, whole_param(request, "from", 0), response);
  });
  server.Get("/api/samples", [&parts](const Request& request, Response& response) {
    if (const auto folder = run_folder(parts, request, response))
      reply_json(response, run_samples(parts.root, *folder));
  });
  server.Get("/api/tables", [&parts](const Request& request, Response& response) {
    if (const auto folder = run_folder(parts, request, response)) reply_json(response, run_tables(*folder));
  });
  server.Get("/api/learning-rates", [&parts](const Request& request, Response& response) {
    const auto folder = run_folder(parts, request, response);
    if (!folder) return;
    int64_t steps = 0;
    parts.index.read(request.get_param_value("run"),
                     [&](const RunMetrics& metrics) { steps = metrics.progress().steps_total; });
    reply_json(response, parts.options.learning_rates
                             ? parts.options.learning_rates(run_config(*folder), steps)
                             : ordered_json::object());
  });
  server.Get("/api/expected", [&parts](const Request& request, Response& response) {
    const auto folder = run_folder(parts, request, response);
    if (!folder) return;
    ordered_json curves;
    parts.index.read(request.get_param_value("run"), [&](const RunMetrics& metrics) {
      curves = expected_curves(parts.options.expected, *folder, metrics);
    });
    reply_json(response, curves);
  });
  server.Get("/api/opus", [&parts](const Request& request, Response& response) {
    send_through_opus(parts, request, response);
  });
  server.Get("/api/events", [&parts](const Request&, Response& response) { tell(parts, response); });
  server.Get("/files/(.*)", [&parts](const Request& request, Response& response) {
    send_file(parts, request.matches[1], response);
  });
}

}  // namespace melete
