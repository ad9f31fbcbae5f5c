#include "cli/voice_command.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/arguments.h"
#include "cli/machine_words.h"
#include "core/base/error.h"
#include "systems/voicebox/saved_voice.h"

namespace melete {

namespace {

using namespace voicebox;

int voice_save_command(const std::vector<std::string>& args) {
  std::string name, recording, text, from, aligner, folder;
  double longest_seconds = 3;
  MachineWords machine;
  Arguments arguments("voice save", "keeps a voice under a name, for `generate voicebox --voice NAME`");
  arguments.word("name", name, "of the voice");
  arguments.option("voice", recording, "recording of it");
  arguments.option("voice_text", text, "what it says; none: as the .txt beside it has it");
  arguments.option("voice_seconds", longest_seconds, "take only this much of it").at_least(0.1).unit("s");
  arguments.option("from", from, "run or checkpoint of voicebox that is to speak with it");
  arguments.option("aligner", aligner, "run of aligner, to know when the recording says what");
  arguments.option("folder", folder, "where voices are kept; none: MELETE_VOICES, or the user's data folder");
  machine.describe(arguments);
  arguments.example(
      "voice save anna --voice anna.wav --voice_text \"What I say.\" --from runs/voicebox --aligner "
      "runs/aligner");
  if (!arguments.parse(args)) return 0;
  for (const auto& [value, flag] : {std::pair{&recording, "--voice RECORDING"},
                                    {&from, "--from RUN of voicebox"},
                                    {&aligner, "--aligner RUN"}})
    if (value->empty()) throw UsageError(fmt::format("expected {}, got none", flag));
  const at::Device device = machine.start();
  const std::string path = voice_path(folder.empty() ? voices_folder() : folder, name);
  const LoadedVoicebox loaded = load_voicebox(from, Weights::best, "", device);
  SpeechAligner ears(aligner, device);
  SavedVoice voice =
      heard_voice(loaded, ears, recording, words_of(recording, text, "--voice_text"), longest_seconds);
  voice.name = name;
  save_voice(path, voice);
  double seconds = 0;
  for (const double part : voice.seconds) seconds += part;
  fmt::print("{}: {:.2f} s of {}, {} phonemes\n", path, seconds,
             std::filesystem::path(recording).filename().string(), voice.phonemes.size());
  return 0;
}

int voice_list_command(const std::vector<std::string>& args) {
  std::string folder;
  Arguments arguments("voice list", "voices that were saved");
  arguments.option("folder", folder, "where voices are kept; none: MELETE_VOICES, or the user's data folder");
  if (!arguments.parse(args)) return 0;
  if (folder.empty()) folder = voices_folder();
  const auto names = voice_names(folder);
  if (names.empty()) fmt::print("no voices in {}; `melete voice save NAME` keeps one\n", folder);
  for (const std::string& name : names)
    fmt::print("{:<16}  {}\n", name, load_voice(voice_path(folder, name)).text);
  return 0;
}

}  // namespace

int voice_command(const std::vector<std::string>& args) {
  const std::vector<std::string> rest(args.empty() ? args.end() : args.begin() + 1, args.end());
  if (!args.empty() && args[0] == "save") return voice_save_command(rest);
  if (!args.empty() && args[0] == "list") return voice_list_command(rest);
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h" || args[0] == "help")) {
    fmt::print(
        "melete voice: voices kept under a name\n\n  save  keeps one from a recording\n  list  shows what "
        "there is\n\n`melete voice <command> --help` shows what each one takes.\n");
    return 0;
  }
  throw UsageError(fmt::format("expected voice save or voice list, got {}", args.empty() ? "none" : args[0]));
}

}  // namespace melete
