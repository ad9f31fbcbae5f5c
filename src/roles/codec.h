// A codec behind one face: sound to codes and back. Coarse and fine transformers, generation, token files and
// measurements take SoundStream or EnCodec alike through it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "roles/placed.h"

namespace melete {

// Sound of any length to codes, as it comes.
class SoundToCodes {
 public:
  virtual ~SoundToCodes() = default;

  // Mono samples at the codec's rate, as many as there are. -> codes [frames, groups, codes of a group] int64
  // that became known, perhaps none.
  virtual at::Tensor push(std::span<const float> samples) = 0;
  virtual at::Tensor finish() = 0;  // the rest; an unfinished frame is filled up with silence
};

class CodesToSound {
 public:
  virtual ~CodesToSound() = default;

  // codes [frames, groups, codes of a group], later ones may be missing -> samples that became known
  virtual std::vector<float> push(const at::Tensor& codes) = 0;
  virtual std::vector<float> finish() = 0;
};

class Codec : public Placed {
 public:
  virtual std::string kind() const = 0;  // "soundstream", "encodec"
  virtual int64_t rate_hz() const = 0;   // of the audio that encode() takes and decode() gives
  virtual int64_t samples_per_frame() const = 0;
  virtual int64_t codebook_size() const = 0;          // codes are 0 .. codebook_size - 1
  virtual int64_t quantizers() const = 0;             // codes a frame, coarse to fine
  virtual int64_t groups() const { return 1; }        // of channels; each has its share of a frame's codes
  virtual const std::string& identity() const = 0;    // hash of weights and configuration
  virtual int64_t frames(int64_t samples) const = 0;  // how many frames encode() gives for that many samples

  // Both without gradient, whatever the caller's mode is, and callable from several threads at once.
  // audio [batch, samples] -> codes [batch, frames, quantizers] int64
  virtual at::Tensor encode(const at::Tensor& audio) const = 0;
  // The first codes of every frame; those that are missing add nothing.
  // codes [batch, frames, 1 .. quantizers] -> audio [batch, frames * samples_per_frame]
  virtual at::Tensor decode(const at::Tensor& codes) const = 0;

  // Sounds that do not come as one tensor, about `piece_seconds` at a time where the model allows (then it is
  // bounded); otherwise everything is kept until finish(). The same codes and the same sound as in one piece.
  virtual std::unique_ptr<SoundToCodes> sound_to_codes(double piece_seconds) const;
  virtual std::unique_ptr<CodesToSound> codes_to_sound(double piece_seconds) const;
  virtual bool bounded() const { return false; }

  // The same for a sound that is still going on: codes and samples come out as soon as they can be known, at
  // the same cost a frame however long it has lasted. An Error where the codec cannot do that.
  virtual std::unique_ptr<SoundToCodes> live_sound_to_codes() const;
  virtual std::unique_ptr<CodesToSound> live_codes_to_sound() const;
  // From a sample's arrival to the moment at which its frame's codes are known, at most; the codec's own time
  // to compute comes on top. first: before the first codes appear.
  struct LiveDelay {
    int64_t samples = 0, first_samples = 0;
  };
  virtual LiveDelay live_delay() const;

  // Whether an identity that was written down is this codec's: its own, or one that an older program gave it.
  virtual bool answers_to(const std::string& written) const { return written == identity(); }

  // The same at any rate.
  at::Tensor encode_at(const at::Tensor& audio, int64_t audio_rate_hz) const;

  int64_t codes_of_a_group() const { return quantizers() / groups(); }
  double frames_per_second() const {
    return static_cast<double>(rate_hz()) / static_cast<double>(samples_per_frame());
  }
};

}  // namespace melete
