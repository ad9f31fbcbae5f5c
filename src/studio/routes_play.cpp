#include <algorithm>
#include <fstream>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"
#include "io/base/checksum.h"
#include "io/base/picture_file.h"
#include "studio/model_files.h"
#include "studio/routes.h"
#include "studio/run_files.h"
#include "studio/safe_path.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kLargestObject = 1 << 20;
constexpr double kLongestUploadSeconds = 900;

// Paths of results as /files/ serves them.
ordered_json with_paths(ordered_json job) {
  if (job.contains("results"))
    for (auto& path : job["results"]) path = std::string(kStudioFolder) + "/made/" + path.get<std::string>();
  return job;
}

// Nothing of what was sent is kept as it came: the reader takes the samples out, and those are written anew.
std::string keep_upload(const StudioParts& parts, const std::string& name, const std::string& bytes) {
  require(!bytes.empty(), "[upload] expected a recording, a picture or a text, got nothing");
  const fs::path folder = parts.root / kStudioFolder / "uploads";
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "[upload] the folder {} cannot be made: {}", folder.string(), error.message());
  const std::string extension = fs::path(name).extension().string();
  std::string stem;
  for (const char c : fs::path(name).stem().string().substr(0, 60))
    stem += std::isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_';
  const std::string kept = fmt::format("{}-{:08x}", stem.empty() ? "upload" : stem, crc32c(bytes));
  const std::string type = content_type_of(fs::path("x" + extension));
  const fs::path temporary = folder / fmt::format(".{}{}", kept, extension);
  struct Removed {
    fs::path path;
    ~Removed() {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  } removed{temporary};
  fs::path out;
  if (type.starts_with("audio/")) {
    std::ofstream(temporary, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const AudioInfo info = probe_audio(temporary.string());
    require(info.frames > 0 && info.seconds() <= kLongestUploadSeconds && info.channels <= 8,
            "[upload] expected a recording of at most {:.0f} s", kLongestUploadSeconds);
    const Audio audio = read_audio(temporary.string());
    out = folder / (kept + ".flac");
    write_audio(out.string(), audio.samples, audio.rate_hz, audio.channels);
  } else if (type.starts_with("image/")) {
    out = folder / (kept + ".png");
    write_png(out.string(), decode_picture(bytes, name).image);
  } else if (extension == ".txt") {
    require(bytes.size() <= kLargestObject, "[upload] the text is larger than {} bytes", kLargestObject);
    out = folder / (kept + ".txt");
    write_file_atomically(out.string(), bytes);
  } else {
    fail(
        "[upload] expected a recording (wav, flac, ogg, opus, mp3), a picture (png, jpg, webp) or a .txt, "
        "got {}",
        name.substr(0, 80));
  }
  return out.lexically_relative(parts.root).generic_string();
}

}  // namespace

const StudioTool* find_tool(const StudioParts& parts, const std::string& name) {
  for (const StudioTool& tool : parts.options.tools)
    if (tool.name == name) return &tool;
  return nullptr;
}

bool read_object(const StudioParts& parts, const httplib::Request& request, httplib::Response& response,
                 const httplib::ContentReader& reader, ordered_json& object) {
  std::string body;
  if (!read_body(parts, request, response, reader, kLargestObject, body)) return false;
  object = ordered_json::parse(body, nullptr, false);
  if (object.is_object()) return true;
  reply_error(response, 400, "expected a JSON object");
  return false;
}

std::string text_of(const ordered_json& object, const char* key, const std::string& otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  require(found->is_string(), "[{}] expected a text", key);
  return found->get<std::string>();
}

ordered_json jobs_with_paths(const StudioParts& parts) {
  auto list = ordered_json::array();
  if (parts.jobs)
    for (const auto& job : parts.jobs->all()) list.push_back(with_paths(job));
  return list;
}

void add_play_routes(httplib::Server& server, StudioParts& parts) {
  using httplib::ContentReader;
  using httplib::Request;
  using httplib::Response;
  server.Get("/api/blind",
             [&parts](const Request&, Response& response) { reply_json(response, parts.blind.all()); });
  server.Post("/api/blind",
              [&parts](const Request& request, Response& response, const ContentReader& reader) {
                ordered_json given;
                if (read_object(parts, request, response, reader, given))
                  reply_json(response, parts.blind.add(given), 201);
              });
  server.Post(
      "/api/uploads", [&parts](const Request& request, Response& response, const ContentReader& reader) {
        std::string body;
        if (read_body(parts, request, response, reader, kLargestUpload, body))
          reply_json(response, {{"path", keep_upload(parts, request.get_param_value("name"), body)}}, 201);
      });
  server.Get("/api/tools", [&parts](const Request&, Response& response) {
    auto list = ordered_json::array();
    for (const StudioTool& tool : parts.options.tools) {
      auto helpers = ordered_json::array();  // settings that speech is made with: forms begin with them, too
      for (const SpeechTool& speech : parts.options.speech)
        for (const auto& [setting, task] : speech.helpers)
          if (speech.tool == tool.name) helpers.push_back(setting);
      list.push_back({{"name", tool.name},
                      {"about", tool.about},
                      {"extensions", tool.extensions},
                      {"helpers", helpers},
                      {"options", tool.options}});
    }
    reply_json(response, list);
  });
  server.Get("/api/jobs",
             [&parts](const Request&, Response& response) { reply_json(response, jobs_with_paths(parts)); });
  server.Post("/api/jobs", [&parts](const Request& request, Response& response, const ContentReader& reader) {
    ordered_json asked;
    if (!read_object(parts, request, response, reader, asked)) return;
    const StudioTool* tool = find_tool(parts, text_of(asked, "tool"));
    if (!tool || !parts.jobs)
      return reply_error(response, 404, "there is no such tool; /api/tools lists them");
    const JobRequest job = job_request(*tool, asked.value("settings", ordered_json::object()),
                                       text_of(asked, "extension"), parts.root, parts.shown);
    reply_json(response, with_paths(parts.jobs->job(parts.jobs->add(job))), 202);
  });
  server.Get("/api/jobs/([0-9-]+)", [&parts](const Request& request, Response& response) {
    const ordered_json job = parts.jobs ? parts.jobs->job(request.matches[1]) : ordered_json();
    if (job.is_null()) return reply_error(response, 404, "there is no such job");
    reply_json(response, with_paths(job));
  });
  server.Delete("/api/jobs/([0-9-]+)", [&parts](const Request& request, Response& response) {
    if (!parts.jobs || !parts.jobs->cancel(request.matches[1]))
      return reply_error(response, 404, "there is no such job, or it is over");
    reply_json(response, with_paths(parts.jobs->job(request.matches[1])));
  });
  server.Get("/api/kept", [&parts](const Request&, Response& response) {
    reply_json(response, parts.jobs ? parts.jobs->kept() : ordered_json::array());
  });
  server.Delete("/api/kept", [&parts](const Request&, Response& response) {
    if (parts.jobs) parts.jobs->forget_kept();
    reply_json(response, ordered_json::array(), 202);
  });
  server.Get("/api/model-files", [&parts](const Request&, Response& response) {
    reply_json(response, model_files(parts.index));
  });
}

}  // namespace melete
