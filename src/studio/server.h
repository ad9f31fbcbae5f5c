// `melete studio`: one page over a folder of runs, and the HTTP interface behind it (docs/studio.md). It
// reads files and starts processes; it runs no model itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "studio/expected.h"
#include "studio/tools.h"

namespace melete {

struct StudioOptions {
  std::string folder;  // of runs
  std::string address = "127.0.0.1";
  int port = 0;         // 0: any that is free
  std::string token;    // needed for an address that is not of the loopback
  std::string program;  // what jobs start; empty: nothing can be made
  std::vector<StudioTool> tools;
  std::vector<SpeechTool> speech;
  // Rates of every phase over a run, from its settings: {"generator": {"x": [...], "y": [...]}}; may be
  // empty.
  std::function<nlohmann::ordered_json(const nlohmann::ordered_json& config, int64_t steps)> learning_rates;
  ReadExpected expected;      // may be empty
  double header_seconds = 5;  // of a request; one that comes byte by byte is not waited for any longer
  double body_seconds = 60;   // likewise
  // An answer is waited for so long, and longer by what it takes at this rate.
  double answer_seconds = 30, answer_bytes_per_second = 8 << 10;
  JobLimits jobs;
};

class Studio {
 public:
  explicit Studio(StudioOptions options);  // binds the port; an Error says why it cannot
  ~Studio();

  int port() const;
  std::string url() const;
  void serve();  // until stop(), which any thread may call
  void stop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace melete
