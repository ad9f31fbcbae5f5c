#include "data/base/espeak.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/base/error.h"
#include "core/base/find_program.h"
#include "data/base/espeak_library.h"
#include "io/base/audio_file.h"

extern char** environ;

namespace melete {

namespace fs = std::filesystem;

namespace {

std::string find_espeak() {
  return find_program("espeak-ng");
}

// Runs a program with its arguments as a list (no shell reads them); what it says goes to the file `output`.
int run_program(const std::string& program, const std::vector<std::string>& arguments,
                const std::string& output) {
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_TRUNC, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, program.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  require(error == 0, "[espeak] cannot start {}: {}", program, std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    require(errno == EINTR, "[espeak] cannot wait for {}: {}", program, std::strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A file name that disappears with its file.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& extension) {
    std::string name = (fs::temp_directory_path() / ("melete-speech-XXXXXX" + extension)).string();
    const int descriptor = ::mkstemps(name.data(), static_cast<int>(extension.size()));
    require(descriptor >= 0, "[espeak] cannot create a temporary file in {}: {}",
            fs::temp_directory_path().string(), std::strerror(errno));
    ::close(descriptor);
    path_ = name;
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// otherwise: what to do where it cannot be installed
std::string require_program(const char* what, const char* otherwise = "") {
  const std::string program = find_espeak();
  require(!program.empty(),
          "[espeak] {} the program espeak-ng, which is not installed; try: sudo apt-get install espeak-ng{}",
          what, otherwise);
  return program;
}

// "ð_ə ɹ_ˈɪ_v_ɚ\n" -> ð, ə, (end of word), ɹ, ˈɪ, v, ɚ. Names of languages that it changes to, "(fr)", are
// left out.
std::vector<std::string> separate(std::string_view line) {
  std::vector<std::string> symbols;
  std::string symbol;
  bool in_brackets = false;
  const auto end_symbol = [&] {
    if (!symbol.empty()) symbols.push_back(std::exchange(symbol, {}));
  };
  for (const char c : line) {
    if (c == '(') in_brackets = true;
    const bool space = c == ' ' || c == '\n';
    if (space || c == '_' || c == '(') {
      end_symbol();
      if (space && !symbols.empty() && !symbols.back().empty()) symbols.emplace_back();
    } else if (!in_brackets) {
      symbol += c;
    }
    if (c == ')') in_brackets = false;
  }
  end_symbol();
  if (!symbols.empty() && symbols.back().empty()) symbols.pop_back();
  return symbols;
}

// Since 1.52 the seed of its noise is the clock's unless -D is given, at which earlier ones fall silent.
bool takes_seed_from_clock(const std::string& program) {
  static const bool takes = [&] {
    const TemporaryFile said(".txt");
    run_program(program, {"-D", "--version"}, said.path());
    return fs::file_size(said.path()) > 0;
  }();
  return takes;
}

std::string phonemes_by_program(const std::string& clause, const std::string& voice) {
  const std::string program =
      require_program("phonemes need the library libespeak-ng1 or",
                      ", or train with phonemizer.source characters or bytes, which need nothing");
  const TemporaryFile said(".txt");
  const int code = run_program(program, {"-q", "--ipa", "--sep=_", "-v", voice, "--", clause}, said.path());
  require(code == 0, "[espeak] espeak-ng ended with {} for the voice {}; try `espeak-ng -v {} hello`", code,
          voice, voice);
  std::ifstream in(said.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

bool espeak_installed() {
  return !find_espeak().empty();
}

bool espeak_library_installed() {
  return EspeakLibrary::find() != nullptr;
}

std::vector<std::string> espeak_phonemes(std::string_view clause, const std::string& voice) {
  const std::string text(clause);
  EspeakLibrary* library = EspeakLibrary::find();
  return separate(library != nullptr ? library->phonemes(text, voice) : phonemes_by_program(text, voice));
}

EspeakSpeech espeak_speak(const std::string& text, const EspeakVoice& voice) {
  const std::string program = require_program("speech needs");
  const TemporaryFile file(".wav");
  std::vector<std::string> arguments = {
      "-v", voice.name, "-s", std::to_string(voice.words_per_minute), "-p", std::to_string(voice.pitch),
      "-w", file.path()};
  if (takes_seed_from_clock(program)) arguments.emplace_back("-D");
  arguments.insert(arguments.end(), {"--", text});
  const int code = run_program(program, arguments, "/dev/null");
  require(code == 0, "[espeak] espeak-ng ended with {} for the voice {}; try `espeak-ng -v {} hello`", code,
          voice.name, voice.name);
  const Audio audio = read_audio(file.path());
  return {downmix(audio), audio.rate_hz, {}};
}

EspeakSpeech espeak_speak_timed(const std::string& text, const EspeakVoice& voice) {
  EspeakLibrary* library = EspeakLibrary::find();
  require(library != nullptr,
          "[espeak] times of phonemes need the library libespeak-ng, which is not installed; try: sudo "
          "apt-get install libespeak-ng1");
  return library->speak(text, voice);
}

}  // namespace melete
