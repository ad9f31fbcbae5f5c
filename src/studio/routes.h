// The parts behind the server's routes, and what every route needs. Only for the files of this folder that
// speak HTTP.
#pragma once

#include <httplib.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "studio/access.h"
#include "studio/blind_test.h"
#include "studio/jobs.h"
#include "studio/run_index.h"
#include "studio/server.h"

namespace melete {

inline constexpr size_t kLargestUpload = 64 << 20;  // bytes of a body

struct StudioParts {
  StudioOptions options;
  AccessRules access;
  std::filesystem::path root;   // the real path of options.folder
  std::filesystem::path shown;  // as it was given: what commands name
  RunIndex index;
  BlindTests blind;
  std::unique_ptr<JobQueue> jobs;  // none: nothing can be made
  std::atomic<uint64_t> jobs_version{1};
  std::atomic<int> listeners{0};  // pages that are being told
  std::atomic<int> uploads{0};    // that are being sent
  std::atomic<bool> stopping{false};

  explicit StudioParts(StudioOptions given);
};

void reply_json(httplib::Response& response, const nlohmann::ordered_json& value, int status = 200);
void reply_error(httplib::Response& response, int status, const std::string& message);
// Body of a request, at most so many bytes and in bounded time; false after an error was replied.
bool read_body(const StudioParts& parts, const httplib::Request& request, httplib::Response& response,
               const httplib::ContentReader& reader, size_t most_bytes, std::string& body);

// The same as a JSON object.
bool read_object(const StudioParts& parts, const httplib::Request& request, httplib::Response& response,
                 const httplib::ContentReader& reader, nlohmann::ordered_json& object);
// A text of an object, where it has one of that name; an Error where it is no text.
std::string text_of(const nlohmann::ordered_json& object, const char* key, const std::string& otherwise = "");

const StudioTool* find_tool(const StudioParts& parts, const std::string& name);  // nullptr: there is none
nlohmann::ordered_json jobs_with_paths(
    const StudioParts& parts);  // all, their results as /files/ serves them

void add_run_routes(httplib::Server& server, StudioParts& parts);  // runs, curves, samples, files, events
void add_play_routes(httplib::Server& server,
                     StudioParts& parts);                             // tools, jobs, uploads, blind tests
void add_speech_routes(httplib::Server& server, StudioParts& parts);  // as OpenAI's clients ask

}  // namespace melete
