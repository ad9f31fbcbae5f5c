// Runs as the trainer leaves them, a few rows long.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/base/audio_file.h"

namespace melete {

inline void append(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

inline std::string start_row(int64_t steps, double time = 1000, const std::string& task = "soundstream") {
  return fmt::format(
      R"({{"kind":"start","step":0,"time":{},"task":"{}","parameters":{{"codec":1000}},"data":["2 recordings"],"threads":1,)"
      R"("precision":"fp32","device":"cpu","resumed_from_step":null,"steps_total":{}}})"
      "\n",
      time, task, steps);
}

inline std::string step_row(int64_t step, double time, const std::string& loss,
                            const std::string& norm = "1.0") {
  return fmt::format(
      R"({{"kind":"step","step":{},"time":{},"losses":{{"loss":{}}},"gradient_norms":{{"generator":{}}},)"
      R"("learning_rates":{{"generator":0.001}},"chance_levels":{{"loss":5.5}},"seconds":0.5,"data_wait_seconds":0.1,)"
      R"("items_per_second":8,"skipped_total":0}})"
      "\n",
      step, time, loss, norm);
}

// A tone of so many seconds.
inline void write_tone(const std::filesystem::path& path, double seconds, double hertz = 440,
                       float level = 0.5f) {
  std::filesystem::create_directories(path.parent_path());
  std::vector<float> samples(static_cast<size_t>(seconds * 16000));
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i] = level * static_cast<float>(std::sin(2 * M_PI * hertz * static_cast<double>(i) / 16000));
  write_audio(path.string(), samples, 16000, 1);
}

// A run of `steps` steps with a sample of one item at the last of them.
inline std::filesystem::path make_run(const std::filesystem::path& folder, int64_t steps,
                                      const std::string& task = "soundstream") {
  std::filesystem::create_directories(folder / "checkpoints");
  append(folder / "config.json", R"({"batch_size": 2, "model": {"channels": 16}})");
  append(folder / "metrics.jsonl", start_row(steps, 1000, task));
  for (int64_t step = 1; step <= steps; ++step)
    append(folder / "metrics.jsonl", step_row(step, 1000 + static_cast<double>(step),
                                              fmt::format("{}", 10.0 / static_cast<double>(step))));
  for (const char* label : {"original", "online", "ema"})
    write_tone(folder / "samples" / fmt::format("step_{:08}", steps) / fmt::format("0_piece_{}.flac", label),
               0.5);
  append(folder / "metrics.jsonl", R"({"kind":"finished","step":)" + std::to_string(steps) +
                                       R"(,"time":2000,"reason":"done"})"
                                       "\n");
  return folder;
}

}  // namespace melete
