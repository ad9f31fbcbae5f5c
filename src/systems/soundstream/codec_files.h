// Recordings to token files and back, in bounded memory.
#pragma once

#include <functional>
#include <string>

#include "io/base/token_file.h"
#include "systems/soundstream/load.h"
#include "systems/soundstream/pieces.h"

namespace melete {

class CodecFiles {
 public:
  // A run folder or a checkpoint. piece_seconds: how much is worked on at a time.
  explicit CodecFiles(const std::string& run_or_checkpoint, double piece_seconds = 20);

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

  const LoadedCodec& codec() const { return codec_; }
  const std::string& identity() const { return identity_; }
  const std::string& name() const { return name_; }  // "codec step 12000"
  bool bounded() const { return layout_.piece_frames > 0; }

 private:
  LoadedCodec codec_;
  std::string identity_, name_;
  PieceLayout layout_;
};

}  // namespace melete
