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

// What a picture of this kind shows, told from its pixels alone: the ground is what most of it is, the shape
// is the largest patch that differs, its name is that of the outline that fits best. Empty: none to be seen.
struct ShapeSeen {
  std::string colour, shape;
};
ShapeSeen see_shape(const Image& image);

// How many pictures show the colour and the shape that their caption names. An Error where a caption names
// none.
struct ShapesRight {
  int64_t pictures = 0, colour = 0, shape = 0, both = 0;
  void add(const Image& image, const std::string& caption);
};

struct SynthPictureOptions {
  std::string folder;
  int64_t count = 100;
  uint64_t seed = 0;
  int side_pixels = 64;
};
// Writes picture_000000.png and picture_000000.txt, and so on.
void synth_pictures(const SynthPictureOptions& options, const ProgressCallback& progress = {});

}  // namespace melete
