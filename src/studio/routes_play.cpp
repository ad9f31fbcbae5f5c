#include <algorithm>
#include <fstream>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"
#include "io/base/checksum.h"
#include "io/base/picture_file.h"
#include "studio/kept_folder.h"
#include "studio/model_files.h"
#include "studio/routes.h"
#include "studio/run_files.h"
#include "studio/safe_path.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

// Whether there is a place among so few, and keeps it.
class OneOfFew {
 public:
  OneOfFew(std::atomic<int>& taken, int places) : taken_(taken), good_(taken.fetch_add(1) < places) {}
  ~OneOfFew() { --taken_; }
  OneOfFew(const OneOfFew&) = delete;
  OneOfFew& operator=(const OneOfFew&) = delete;
  explicit operator bool() const { return good_; }

 private:
  std::atomic<int>& taken_;
  bool good_;
};

constexpr size_t kLargestObject = 1 << 20;
constexpr int64_t kLongestUploadSeconds = 900;
constexpr int64_t kMostUploadSamples = kLongestUploadSeconds * 48000 * 2;  // of all channels
constexpr int64_t kMostUploadPixels = 1 << 25, kMostUploadChannels = 8;
constexpr int kUploadsAtOnce = 4;
constexpr size_t kUploadsKept = 200;
constexpr uintmax_t kUploadBytesKept = 4'000'000'000;

// Paths of results as /files/ serves them.
ordered_json with_paths(ordered_json job) {
  if (job.contains("results"))
    for (auto& path : job["results"]) path = std::string(kStudioFolder) + "/made/" + path.get<std::string>();
  return job;
}

// Piece by piece: silence of a few bytes unpacks to far more than was sent.
void keep_recording(const fs::path& from, const fs::path& to) {
  AudioReader reader(from.string());
  const AudioInfo info = reader.info();
  const auto check = [&info](int64_t frames) {
    require(
        frames > 0 && info.channels <= kMostUploadChannels &&
            frames <= kLongestUploadSeconds * info.rate_hz && frames * info.channels <= kMostUploadSamples,
        "[upload] expected a recording of at most {} s, {} channels and {} million samples in all of them, "
        "got {} frames of {} channels at {} Hz",
        kLongestUploadSeconds, kMostUploadChannels, kMostUploadSamples / 1'000'000, frames, info.channels,
        info.rate_hz);
  };
  check(info.frames);
  AudioWriter writer(to.string(), info.rate_hz, info.channels, info.frames);
  std::vector<float> piece(static_cast<size_t>(16384 * info.channels));
  int64_t frames = 0;
  for (int64_t got; (got = reader.read(piece)) > 0;) {
    check(frames += got);  // what a header says of an MP3 is an estimate
    writer.write(std::span(piece).first(static_cast<size_t>(got * info.channels)));
  }
  require(frames == info.frames || (frames > 0 && info.format.starts_with("MPEG")),
          "[upload] the recording ends at frame {} but its header says {}; it may be cut off", frames,
          info.frames);
  writer.commit();
}

Image read_upload(const std::string& bytes, const std::string& name) {
  const PictureSize size = picture_size(bytes, name);
  require(int64_t{size.width} * size.height <= kMostUploadPixels,
          "[upload] expected a picture of at most {} million pixels, got {} x {}",
          kMostUploadPixels / 1'000'000, size.width, size.height);
  return decode_picture(bytes, name).image;
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
    out = folder / (kept + ".flac");
    keep_recording(temporary, out);
  } else if (type.starts_with("image/")) {
    out = folder / (kept + ".png");
    write_png(out.string(), read_upload(bytes, name));
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
  clear_oldest(folder, kUploadsKept, kUploadBytesKept);
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
        const OneOfFew place(parts.uploads, kUploadsAtOnce);
        if (!place) return reply_error(response, 503, "others are sending something; try again");
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
                      {"options", options_now(tool)}});
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
      return reply_error(response, 404, "there is no such job");
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
