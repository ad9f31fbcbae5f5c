// Speech as OpenAI's clients ask for it, sent while it is made.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "io/base/audio_stream.h"
#include "studio/routes.h"
#include "studio/run_files.h"
#include "studio/safe_path.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kLongestSpeech = 10000, kWaveHeader = 44;
constexpr double kSpeechSeconds = 600, kLookEverySeconds = 0.05;

// The wave file that grows beside a job, as io/base/audio_stream.h writes it.
class GrowingWave {
 public:
  explicit GrowingWave(fs::path path) : path_(std::move(path)) {}
  ~GrowingWave() {
    if (file_ >= 0) ::close(file_);
  }
  GrowingWave(const GrowingWave&) = delete;
  GrowingWave& operator=(const GrowingWave&) = delete;

  // False while it has no sound in it. Once open, it can be read to its end even after it was removed.
  bool open() {
    if (rate_hz_ > 0) return true;
    if (file_ < 0) file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    unsigned char header[kWaveHeader + 2];
    if (file_ < 0 || ::pread(file_, header, sizeof header, 0) != static_cast<ssize_t>(sizeof header))
      return false;
    for (int i = 3; i >= 0; --i) rate_hz_ = rate_hz_ << 8 | header[24 + i];
    return rate_hz_ > 0;
  }
  int rate_hz() const { return rate_hz_; }

  // What has come since the last time.
  std::vector<float> more() {
    std::vector<float> samples;
    unsigned char bytes[8192];
    for (ssize_t count; (count = ::pread(file_, bytes, sizeof bytes, at_)) >= 2; at_ += count / 2 * 2)
      for (ssize_t i = 0; i + 1 < count; i += 2)
        samples.push_back(static_cast<float>(static_cast<int16_t>(bytes[i] | bytes[i + 1] << 8)) / 32767);
    return samples;
  }

 private:
  fs::path path_;
  int file_ = -1, rate_hz_ = 0;
  off_t at_ = kWaveHeader;
};

std::string reason_of(const ordered_json& job) {
  return job["lines"].empty() ? "it failed" : job["lines"].back().get<std::string>();
}

// The settings of the first tool that can do it; nothing to say it with: a null tool.
struct Wish {
  const StudioTool* tool = nullptr;
  ordered_json settings;
};

Wish wish_for(const StudioParts& parts, const ordered_json& asked) {
  const std::string wanted = text_of(asked, "model"), voice = text_of(asked, "voice");
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
    ordered_json settings{{"from", run}, {"text", text_of(asked, "input")}};
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
    return {tool, settings};
  }
  return {};
}

// From now on what is made goes out as soon as it is there. When the listener leaves, the job ends.
void send_as_it_is_made(StudioParts& parts, const std::string& id, std::shared_ptr<GrowingWave> sound,
                        std::shared_ptr<AudioStream> stream, const std::string& type,
                        httplib::Response& response) {
  response.set_chunked_content_provider(
      type,
      [&parts, id, sound, stream](size_t, httplib::DataSink& sink) {
        try {
          const bool over = parts.jobs->wait_for(id, kLookEverySeconds);
          std::string bytes = stream->push(sound->more());
          if (over) {
            // Without an end of its own, the listener knows that this was not all.
            if (parts.jobs->job(id)["state"] != "done") return false;
            bytes += stream->finish();
          }
          if (!bytes.empty() && !sink.write(bytes.data(), bytes.size())) return false;
          if (over) sink.done();
          return over || (sink.is_writable() && !parts.stopping);
        } catch (const std::exception&) {  // the encoder's; nobody above would catch it
          return false;
        }
      },
      [&parts, id](bool) { parts.jobs->cancel(id); });  // which means nothing to one that is over
}

// {"model", "input", "voice", "response_format", "speed"}
void speak(StudioParts& parts, const ordered_json& asked, httplib::Response& response) {
  const std::string input = text_of(asked, "input"), format = text_of(asked, "response_format", "wav");
  if (input.empty() || input.size() > kLongestSpeech)
    return reply_error(response, 400, fmt::format("expected an input of 1 to {} bytes", kLongestSpeech));
  if (format != "wav" && format != "flac" && format != "opus")
    return reply_error(response, 400,
                       "expected the response_format wav, flac or opus, got " + format.substr(0, 40));
  const Wish wish = wish_for(parts, asked);
  if (!wish.tool)
    return reply_error(response, 404,
                       "no run in this folder can speak: train voicebox with duration, or "
                       "spear-text-to-semantic with coarse");
  JobRequest request = job_request(*wish.tool, wish.settings, ".wav", parts.root, parts.shown);
  request.streams = wish.tool->streams;
  const std::string id = parts.jobs->add(request);
  response.set_header("X-Job", id);
  auto sound = std::make_shared<GrowingWave>(parts.jobs->live_path(id));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kSpeechSeconds);
  for (bool over = false; !sound->open() && !over;) {
    over = parts.jobs->wait_for(id, kLookEverySeconds);
    if (over || (std::chrono::steady_clock::now() < deadline && !parts.stopping)) continue;
    parts.jobs->cancel(id);
    return reply_error(response, 504, "it took too long");
  }
  const std::string type = content_type_of("x." + format);
  if (sound->rate_hz() > 0) {
    try {
      auto stream = std::make_shared<AudioStream>(format, sound->rate_hz());
      return send_as_it_is_made(parts, id, sound, stream, type, response);
    } catch (const Error&) {  // a rate that the format does not know
      parts.jobs->cancel(id);
      throw;
    }
  }
  const ordered_json job = parts.jobs->job(id);
  const fs::path made = parts.jobs->folder_of(id) / "result.wav";
  if (job["state"] != "done" || !fs::exists(made)) return reply_error(response, 500, reason_of(job));
  const Audio audio = read_audio(made.string());
  AudioStream stream(format, audio.rate_hz);
  const std::string begin = stream.push(downmix(audio));
  response.set_content(begin + stream.finish(), type);
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

void add_speech_routes(httplib::Server& server, StudioParts& parts) {
  using httplib::Request;
  using httplib::Response;
  server.Post("/v1/audio/speech",
              [&parts](const Request& request, Response& response, const httplib::ContentReader& reader) {
                ordered_json asked;
                if (read_object(parts, request, response, reader, asked)) speak(parts, asked, response);
              });
  server.Get("/v1/models", [&parts](const Request&, Response& response) { list_models(parts, response); });
}

}  // namespace melete
