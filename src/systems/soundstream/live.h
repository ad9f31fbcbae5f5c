// The codec on a sound that is still going on: every layer remembers what it needs of the past, so a frame
// costs the same however long the sound has lasted, and nothing is computed twice. How the sound is cut into
// chunks changes nothing.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "roles/codec.h"
#include "systems/soundstream/soundstream.h"

namespace melete {

class LiveEncoder final : public SoundToCodes {
 public:
  explicit LiveEncoder(SoundStream model);  // in eval mode, mono

  at::Tensor push(std::span<const float> samples) override;
  at::Tensor finish() override;

 private:
  at::Tensor run(int64_t frames);

  SoundStream model_;
  int64_t frame_samples_, look_ahead_;
  int64_t least_frames_;  // until so many are there, a codec that mirrors its beginning cannot start
  FrameHistory history_;
  std::vector<float> held_;  // not yet coded
  bool begun_ = false;
};

class LiveDecoder final : public CodesToSound {
 public:
  explicit LiveDecoder(SoundStream model);

  std::vector<float> push(const at::Tensor& codes) override;
  std::vector<float> finish() override;

 private:
  std::vector<float> run();

  SoundStream model_;
  int64_t least_frames_;
  FrameHistory history_;
  at::Tensor held_;  // [frames, groups, codes of a group] not yet decoded
  bool begun_ = false;
};

}  // namespace melete
