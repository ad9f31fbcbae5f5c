// Recordings to token files and back with any codec; in bounded memory where the codec allows it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/base/token_file.h"
#include "roles/codec.h"

namespace melete {

class CodecFiles {
 public:
  // name: of the codec, for people ("codec step 12000"). piece_seconds: how much is worked on at a time.
  CodecFiles(std::shared_ptr<const Codec> codec, std::string name, double piece_seconds = 20);

  struct Work {
    double sound_seconds = 0;
    double bits_per_second = 0;
  };
  using OnProgress = std::function<void(double sound_seconds)>;

  // Any audio file; channels are averaged. quantizers: of every group, 0 for all. The file appears whole or
  // not at all.
  Work encode(const std::string& recording, const std::string& tokens, int64_t quantizers = 0,
              const OnProgress& on_progress = {});
  // As long as the recording was, at the codec's rate. Tokens of another model are refused by name.
  Work decode(const std::string& tokens, const std::string& recording, const OnProgress& on_progress = {});

  const Codec& codec() const { return *codec_; }
  const std::string& name() const { return name_; }

 private:
  std::shared_ptr<const Codec> codec_;
  std::string name_;
  double piece_seconds_;
};

}  // namespace melete
