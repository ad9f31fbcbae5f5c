// Captioned pictures made from nothing, a function of (seed, index): one coloured shape of some size,
// somewhere on a plain ground, and a caption that says so. Demo and tests can ask a generated picture whether
// it shows what was asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/manifest.h"
#include "io/base/png.h"

namespace melete {

struct SynthColour {
  const char* name;
  uint8_t red, green, blue;
};
const std::vector<SynthColour>& synth_colours();      // of shapes
const std::vector<std::string>& synth_shape_names();  // circle, square, triangle, cross

struct SynthPicture {
  Image image;
  std::string caption;  // "a large red circle on the left, on black"
  std::string colour, shape;
};
SynthPicture synth_picture(uint64_t seed, int64_t index, int side_pixels = 64);

struct SynthPictureOptions {
  std::string folder;
  int64_t count = 100;
  uint64_t seed = 0;
  int side_pixels = 64;
};
// Writes picture_000000.png and picture_000000.txt, and so on.
void synth_pictures(const SynthPictureOptions& options, const ProgressCallback& progress = {});

}  // namespace melete
