// All that codecs are compared by, at once. What each figure sees and misses: docs/codec.md.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

namespace melete {

struct SoundFigure {
  std::string name;   // "extended_stoi", for files
  std::string label;  // "ESTOI", for people
  bool higher_is_better = false;
  int digits = 3;    // after the point
  double value = 0;  // not a number where the sound is too short or too quiet to tell
};

// real, fake [1, samples]
std::vector<SoundFigure> sound_figures(const at::Tensor& real, const at::Tensor& fake,
                                       int64_t sample_rate_hz);

// Means over recordings; those without a value of a figure do not count for it.
class FigureMeans {
 public:
  void add(const std::vector<SoundFigure>& figures);
  std::vector<SoundFigure> means() const;

 private:
  std::vector<SoundFigure> sums_;
  std::vector<int64_t> counts_;
};

}  // namespace melete
