#include "cli/studio_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "cli/arguments.h"
#include "cli/codec_command.h"
#include "cli/terminal.h"
#include "config/schema.h"
#include "core/base/error.h"
#include "core/base/shell_line.h"
#include "io/base/atomic_file.h"
#include "run/expectation.h"
#include "studio/report.h"
#include "studio/run_metrics.h"
#include "studio/server.h"
#include "systems/system.h"
#include "systems/voicebox/saved_voice.h"
#include "train/schedule.h"

namespace melete {

namespace {

constexpr int64_t kStudioPort = 7007, kRatePoints = 400;

// Every section that has an optimiser and a schedule is a phase.
void add_rates(const nlohmann::ordered_json& section, const std::string& name, int64_t steps,
               nlohmann::ordered_json& rates) {
  if (!section.is_object()) return;
  const auto optimiser = section.find("optimiser"), schedule = section.find("schedule");
  if (optimiser != section.end() && schedule != section.end() && optimiser->contains("learning_rate")) {
    ScheduleConfig config;
    Schema schema = schema_of(config);
    for (const auto& [key, value] : schedule->items())
      if (value.is_object() || schema.find(key)) schema.apply({{key, value}});
    Schedule curve(config, optimiser->at("learning_rate").get<double>(), steps);
    const int64_t stride = std::max<int64_t>(1, steps / kRatePoints);
    nlohmann::ordered_json x = nlohmann::ordered_json::array(), y = x;
    for (int64_t step = 0; step < steps; ++step) {  // in order: some curves are a sequence
      const double rate = curve.rate(step);
      if (step % stride != 0 && step + 1 != steps) continue;
      x.push_back(step + 1);  // rows of the metrics count from 1
      y.push_back(rate);
    }
    rates[name.empty() ? "all" : name] = {{"x", x}, {"y", y}};
  }
  for (const auto& [key, value] : section.items()) add_rates(value, key, steps, rates);
}

nlohmann::ordered_json learning_rates(const nlohmann::ordered_json& config, int64_t steps) {
  auto rates = nlohmann::ordered_json::object();
  try {
    add_rates(config, "", std::min<int64_t>(steps, 10'000'000), rates);
  } catch (const std::exception&) {  // settings of a younger program: no curve ahead of time
  }
  return rates;
}

// Of one side of a table: its figures by name, each as steps with low and high.
nlohmann::ordered_json figures_json(const std::map<std::string, Expectation::Rows>& side) {
  auto figures = nlohmann::ordered_json::object();
  for (const auto& [name, rows] : side) {
    nlohmann::ordered_json x = nlohmann::ordered_json::array(), low = x, high = x;
    for (const auto& [step, band] : rows) {
      x.push_back(step);
      low.push_back(band.low);
      high.push_back(band.high);
    }
    figures[name] = {{"x", x}, {"low", low}, {"high", high}};
  }
  return figures;
}

nlohmann::ordered_json read_expected(const std::filesystem::path& run) {
  const std::string path = expectation_of_run(run.string());
  if (!std::filesystem::exists(path)) return nullptr;
  try {
    const Expectation table = read_expectation(path);
    return {{"data", table.data},
            {"machine", table.machine},
            {"main", table.main.name},
            {"label", table.label},
            {"training", figures_json(table.training)},
            {"validation", figures_json(table.validation)}};
  } catch (const Error&) {  // a broken table is none; the run itself has said so
    return nullptr;
  }
}

std::vector<std::string> saved_voices() {
  try {
    return voicebox::voice_names(voicebox::voices_folder());
  } catch (const Error&) {  // no home, so no voices
    return {};
  }
}

// Every generator in the systems' list, with the settings that all of them have.
std::vector<StudioTool> studio_tools(int64_t threads) {
  std::vector<StudioTool> tools;
  for (const System& system : systems())
    for (const Generator& generator : system.generates) {
      const auto generation = generator.make();
      Schema schema;
      generation->describe(schema);
      int64_t seed = 0;
      schema.option("seed", seed, "same seed, same result").at_least(0);
      auto form = form_of(schema);
      for (auto& option : form)  // a voice is a recording or one of these
        if (option["help"].get<std::string>().find("`voice save`") != std::string::npos)
          option["names"] = nlohmann::ordered_json::array();
      StudioTool tool{generator.name,
                      generator.about,
                      {"generate", generator.name},
                      generation->extensions(),
                      form,
                      generation->streams(),
                      saved_voices};
      tools.push_back(std::move(tool));
    }
  CodecCompareConfig compare;
  const Schema schema = schema_of(compare);
  tools.push_back({"codec",
                   "a recording with 1, 2, ... quantizers of a codec, and through Opus",
                   {"codec", "compare"},
                   {},
                   form_of(schema)});
  if (threads > 0)
    for (StudioTool& tool : tools) tool.words.push_back(fmt::format("--threads={}", threads));
  return tools;
}

std::vector<SpeechTool> speech_tools() {
  return {{"voicebox", "voicebox", {{"durations", "duration"}, {"vocoder", "vocos"}}, "aligner", "aligner"},
          {"spear-tts", "spear-text-to-semantic", {{"coarse", "coarse"}, {"fine", "fine"}}, "", ""}};
}

// A signal may reach any thread, also those of the engine; what it may do there is to write a byte.
int end_asked[2] = {-1, -1};
void ask_to_end(int) {
  (void)!::write(end_asked[1], "e", 1);
}

int export_report(const std::vector<std::string>& args) {
  ReportOptions options;
  std::string out;
  int64_t megabytes = 64;
  Arguments arguments("studio export",
                      "runs as one page that opens from disk: curves, samples, pictures, settings, figures");
  arguments.rest("runs", options.runs, "folders of runs");
  arguments.option("out", out, "report.html");
  arguments.option("samples", options.samples, "samples and pictures of every item that go in")
      .one_of({"newest", "all", "none"});
  arguments.option("items", options.items, "only of items with one of these in their names; none: of all");
  arguments.option("megabytes", megabytes, "room for them; what does not fit is left out and counted")
      .at_least(0)
      .unit("MB");
  arguments.alias("o", "out");
  arguments.example("studio export runs/codec runs/codec-wide -o report.html");
  if (!arguments.parse(args)) return 0;
  if (out.empty()) throw UsageError("-o is missing: report.html");
  if (options.runs.empty()) throw UsageError("expected one run or more, got none");
  options.most_bytes = megabytes * 1'000'000;
  options.learning_rates = learning_rates;
  options.expected = read_expected;
  const Report report = make_report(options);
  write_file_atomically(out, report.html);
  fmt::print("{}: {}, {} samples and pictures inside\n", out,
             human_bytes(static_cast<double>(report.html.size())), report.files);
  if (report.left_out > 0)
    fmt::print(stderr, "melete: {} samples and pictures did not fit; try --megabytes {}\n", report.left_out,
               megabytes * 4);
  return 0;
}

// The words of a tool that starts with a run of that task; in capitals what a person has to put there.
std::vector<std::string> example_words(const StudioTool& tool, const std::string& run) {
  std::vector<std::string> words{"melete"};
  words.insert(words.end(), tool.words.begin(), tool.words.end());
  words.insert(words.end(), {"--from", run});
  for (const SpeechTool& speech : speech_tools())
    for (const auto& [setting, task] : speech.helpers)
      if (speech.tool == tool.name) words.insert(words.end(), {"--" + setting, "RUN-OF-" + task});
  for (const auto& option : tool.options) {
    const std::string name = option["name"], help = option["help"];
    if (name == "text" && help.find("for models") == std::string::npos)  // which this one may be not
      words.insert(words.end(), {"--text", "WORDS"});
    if (name == "recording" || name == "prompt") words.insert(words.end(), {"--" + name, "RECORDING.wav"});
  }
  words.insert(words.end(), {"-o", tool.extensions.empty() ? "made" : "made" + tool.extensions.front()});
  return words;
}

}  // namespace

std::vector<std::string> commands_with(const std::string& run) {
  RunMetrics metrics((std::filesystem::path(run) / "metrics.jsonl").string());
  while (metrics.poll(1 << 22)) {
  }
  std::vector<std::string> lines;
  for (const StudioTool& tool : studio_tools(0))
    for (const auto& option : tool.options)
      if (option["name"] == "from" && option.contains("tasks"))
        for (const auto& one : option["tasks"])
          if (one == metrics.progress().task) lines.push_back(shell_line(example_words(tool, run)));
  return lines;
}

int studio_command(const std::vector<std::string>& args) {
  if (!args.empty() && args.front() == "export") return export_report({args.begin() + 1, args.end()});
  if (!args.empty() && args.front() == "work") return studio_work_command({args.begin() + 1, args.end()});
  StudioOptions options;
  int64_t port = kStudioPort, threads = 0;
  double memory_gigabytes = 0, job_minutes = 30, kept_gigabytes = 4, kept_minutes = 10;
  int64_t kept_models = 8;
  int64_t kept_results = static_cast<int64_t>(options.jobs.kept);
  double kept_disk_gigabytes = static_cast<double>(options.jobs.kept_on_disk) / 1e9;
  bool watch_only = false;
  Arguments arguments(
      "studio",
      "a page over a folder of runs: curves, settings, sound and pictures while they train, blind "
      "tests, and a playground; `melete studio export --help`: the same as one file");
  arguments.word("runs", options.folder, "folder of runs");
  arguments.option("port", port, "0: any that is free").at_least(0).at_most(65535);
  arguments.option("address", options.address, "to listen on; one that others can reach needs --token");
  arguments.option("token", options.token, "secret that the page is opened with");
  arguments.option("watch_only", watch_only, "without the playground: nothing can be started from the page");
  arguments
      .option("job_threads", threads, "threads of what the playground starts; 0: as `melete generate` has it")
      .at_least(0);
  arguments.option("job_minutes", job_minutes, "longer jobs are stopped").at_least(0.1).unit("min");
  arguments.option("job_memory", memory_gigabytes, "that a job may have; 0: no limit").at_least(0).unit("GB");
  arguments
      .option("keep_models", kept_models,
              "models that stay in memory between jobs; 0: none, and a process for every job")
      .at_least(0);
  arguments.option("keep_memory", kept_gigabytes, "that they take at most; 0: no limit")
      .at_least(0)
      .unit("GB");
  arguments.option("keep_minutes", kept_minutes, "without a job, then they go").at_least(0).unit("min");
  arguments
      .option("keep_results", kept_results,
              "results of the playground in RUNS/studio/made; the oldest beyond these are removed")
      .at_least(1);
  arguments.option("keep_disk", kept_disk_gigabytes, "that they may take, likewise")
      .at_least(0.001)
      .unit("GB");
  arguments.example("studio runs");
  arguments.example("studio runs --address 0.0.0.0 --token \"$(openssl rand -hex 16)\"");
  arguments.example("studio export runs/codec -o report.html");
  if (!arguments.parse(args)) return 0;
  options.port = static_cast<int>(port);
  options.learning_rates = learning_rates;
  options.expected = read_expected;
  options.jobs.seconds = job_minutes * 60;
  options.jobs.memory_bytes = static_cast<int64_t>(memory_gigabytes * 1e9);
  options.jobs.kept_models = kept_models;
  // A job needs room beside what is kept.
  if (memory_gigabytes > 0 && (kept_gigabytes == 0 || kept_gigabytes > memory_gigabytes / 2))
    kept_gigabytes = memory_gigabytes / 2;
  options.jobs.kept_bytes = static_cast<int64_t>(kept_gigabytes * 1e9);
  options.jobs.kept_seconds = kept_minutes * 60;
  options.jobs.kept = static_cast<size_t>(kept_results);
  options.jobs.kept_on_disk = static_cast<uintmax_t>(kept_disk_gigabytes * 1e9);
  if (!watch_only) {
    options.program = std::filesystem::canonical("/proc/self/exe").string();
    options.tools = studio_tools(threads);
    options.speech = speech_tools();
  }

  require(::pipe2(end_asked, O_CLOEXEC) == 0, "[studio] no pipe: {}", std::strerror(errno));
  for (const int one : {SIGINT, SIGTERM}) std::signal(one, ask_to_end);
  std::signal(SIGPIPE, SIG_IGN);
  {
    Studio studio(options);
    fmt::print("{}  (Ctrl-C ends it)\n", studio.url());
    std::fflush(stdout);
    std::thread waiting([&] {
      char byte;
      while (::read(end_asked[0], &byte, 1) < 0 && errno == EINTR) {
      }
      studio.stop();
    });
    studio.serve();
    ask_to_end(0);  // where serving ended by itself
    waiting.join();
  }
  for (const int one : {SIGINT, SIGTERM}) std::signal(one, SIG_DFL);
  for (const int end : end_asked) ::close(end);
  return 0;
}

}  // namespace melete
