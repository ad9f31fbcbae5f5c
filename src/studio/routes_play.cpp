#include <algorithm>
#include <fstream>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"
#include "io/base/checksum.h"
#include "io/base/picture_file.h"
#include "studio/routes.h"
#include "studio/run_files.h"
#include "studio/safe_path.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kLargestObject = 1 << 20, kLongestSpeech = 10000;
constexpr double kLongestUploadSeconds = 900, kSpeechSeconds = 600;

const StudioTool* find_tool(const StudioParts& parts, const std::string& name) {
  for (const StudioTool& tool : parts.options.tools)
    if (tool.name == name) return &tool;
  return nullptr;
}

bool read_object(const httplib::Request& request, httplib::Response& response,
                 const httplib::ContentReader& reader, ordered_json& object) {
  std::string body;
  if (!read_body(request, response, reader, kLargestObject, body)) return false;
  object = ordered_json::parse(body, nullptr, false);
  if (object.is_object()) return true;
  reply_error(response, 400, "expected a JSON object");
  return false;
}

std::string text_of(const ordered_json& object, const char* key, const std::string& otherwise = "") {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  require(found->is_string(), "[{}] expected a text", key);
  return found->get<std::string>();
}

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

// {"model", "input", "voice", "response_format", "speed"}, as OpenAI's clients send it.
void speak(StudioParts& parts, const ordered_json& asked, httplib::Response& response) {
  const std::string input = text_of(asked, "input"), wanted = text_of(asked, "model");
  const std::string format = text_of(asked, "response_format", "wav"), voice = text_of(asked, "voice");
  if (input.empty() || input.size() > kLongestSpeech)
    return reply_error(response, 400, fmt::format("expected an input of 1 to {} bytes", kLongestSpeech));
  if (format != "wav" && format != "flac" && format != "opus")
    return reply_error(response, 400,
                       "expected the response_format wav, flac or opus, got " + format.substr(0, 40));
  for (const SpeechTool& speech : parts.options.speech) {
    // The name of a run, or any other (tts-1): the newest that can speak.
    std::string run = parts.index.newest_of_task(speech.task);
    if (parts.index.has(wanted)) {
      std::string task;
      parts.index.read(wanted, [&](const RunMetrics& metrics) { task = metrics.progress().task; });
      if (task != speech.task) continue;
      run = wanted;
    }
    const StudioTool* tool = find_tool(parts, speech.tool);
    if (run.empty() || !tool || !parts.jobs) continue;
    ordered_json settings{{"from", run}, {"text", input}};
    for (const auto& [setting, task] : speech.helpers)
      if (const std::string helper = parts.index.newest_of_task(task); !helper.empty())
        settings[setting] = helper;
    // A voice is a recording below studio/voices; other names, as OpenAI has them, are the model's own voice.
    const std::string recording = fmt::format("{}/voices/{}.wav", kStudioFolder, voice);
    if (!voice.empty() && path_inside(parts.root, recording)) {
      settings["voice"] = recording;
      if (const std::string helper = parts.index.newest_of_task(speech.voice_helper_task); !helper.empty())
        settings[speech.voice_helper] = helper;
    }
    const bool has_speed = std::any_of(tool->options.begin(), tool->options.end(),
                                       [](const ordered_json& one) { return one["name"] == "speed"; });
    if (has_speed && asked.contains("speed") && asked["speed"].is_number())
      settings["speed"] = asked["speed"];
    const std::string id = parts.jobs->add(job_request(*tool, settings, ".wav", parts.root, parts.shown));
    if (!parts.jobs->wait_for(id, kSpeechSeconds)) {
      parts.jobs->cancel(id);
      return reply_error(response, 504, "it took too long");
    }
    const ordered_json job = parts.jobs->job(id);
    const fs::path made = parts.jobs->folder_of(id) / "result.wav";
    if (job["state"] != "done" || !fs::exists(made)) {
      const std::string last = job["lines"].empty() ? "it failed" : job["lines"].back().get<std::string>();
      return reply_error(response, 500, last);
    }
    fs::path sent = made;
    if (format != "wav") {
      const Audio audio = read_audio(made.string());
      sent = parts.jobs->folder_of(id) / ("speech." + format);
      write_audio(sent.string(), audio.samples, audio.rate_hz, audio.channels);
    }
    std::ifstream in(sent, std::ios::binary);
    response.set_content(std::string(std::istreambuf_iterator<char>(in), {}), content_type_of(sent));
    response.set_header("X-Job", id);
    return;
  }
  reply_error(
      response, 404,
      "no run in this folder can speak: train voicebox with duration, or spear-text-to-semantic with coarse");
}

void list_models(const StudioParts& parts, httplib::Response& response) {
  ordered_json out{{"object", "list"}, {"data", ordered_json::array()}};
  for (const std::string& id : parts.index.ids())
    parts.index.read(id, [&](const RunMetrics& metrics) {
      for (const SpeechTool& speech : parts.options.speech)
        if (metrics.progress().task == speech.task && metrics.progress().saved > 0)
          out["data"].push_back({{"id", id},
                                 {"object", "model"},
                                 {"created", static_cast<int64_t>(metrics.progress().started_time)},
                                 {"owned_by", "melete"}});
    });
  reply_json(response, out);
}

}  // namespace

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
                if (read_object(request, response, reader, given))
                  reply_json(response, parts.blind.add(given), 201);
              });
  server.Post(
      "/api/uploads", [&parts](const Request& request, Response& response, const ContentReader& reader) {
        std::string body;
        if (read_body(request, response, reader, kLargestUpload, body))
          reply_json(response, {{"path", keep_upload(parts, request.get_param_value("name"), body)}}, 201);
      });
  server.Get("/api/tools", [&parts](const Request&, Response& response) {
    auto list = ordered_json::array();
    for (const StudioTool& tool : parts.options.tools)
      list.push_back({{"name", tool.name},
                      {"about", tool.about},
                      {"extensions", tool.extensions},
                      {"options", tool.options}});
    reply_json(response, list);
  });
  server.Get("/api/jobs",
             [&parts](const Request&, Response& response) { reply_json(response, jobs_with_paths(parts)); });
  server.Post("/api/jobs", [&parts](const Request& request, Response& response, const ContentReader& reader) {
    ordered_json asked;
    if (!read_object(request, response, reader, asked)) return;
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
  server.Post("/v1/audio/speech",
              [&parts](const Request& request, Response& response, const ContentReader& reader) {
                ordered_json asked;
                if (read_object(request, response, reader, asked)) speak(parts, asked, response);
              });
  server.Get("/v1/models", [&parts](const Request&, Response& response) { list_models(parts, response); });
}

}  // namespace melete
