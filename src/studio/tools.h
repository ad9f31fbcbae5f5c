// What the playground can start: commands of this program with their settings as a form. The forms are made
// from the same tables that feed the command line, so that whatever `melete generate` knows is in the
// playground by itself.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "studio/jobs.h"

namespace melete {

class Schema;

struct StudioTool {
  std::string name, about;
  std::vector<std::string> words;       // of the program: {"generate", "voicebox"}
  std::vector<std::string> extensions;  // that it writes, the first by default; none: it fills a folder
  nlohmann::ordered_json options;       // as form_of() gives them
  bool streams = false;                 // its sound can be had while it is made
  // What can stand for a path in options that have "names"; asked anew every time. May be empty.
  std::function<std::vector<std::string>()> names = {};
};

// A text-to-speech system behind /v1/audio/speech.
struct SpeechTool {
  std::string tool, task;                                    // a run of this task can speak
  std::vector<std::pair<std::string, std::string>> helpers;  // setting -> task whose newest run it is given
  std::string voice_helper, voice_helper_task;               // only where a voice is asked for
};

// [{"name", "type", "help", "unit", "default", "choices", "limits", "kind", "tasks"}]. The kind says what to
// offer: run (or file of a model, of one of these tasks, where the help says so), recording, picture, file,
// flag, number, choice, text, list, output. An output is a file that is written, too: only whether is asked,
// it goes to the job's folder as "file". Who calls may add "names" to an option: see StudioTool.
nlohmann::ordered_json form_of(const Schema& schema);

// The options of a tool with the names that there are now.
nlohmann::ordered_json options_now(const StudioTool& tool);

// Settings by name -> words of the program, with every path checked to be inside the runs' folder: `root` is
// its real path, `shown` the path as it was given, which the words begin with. Runs and files are named by
// their path below it. An Error says what is wrong.
JobRequest job_request(const StudioTool& tool, const nlohmann::ordered_json& settings,
                       const std::string& extension, const std::filesystem::path& root,
                       const std::filesystem::path& shown);

}  // namespace melete
