#include "data/base/synth_pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/atomic_file.h"

namespace melete {

namespace {

constexpr int kSamplesAside = 3;  // of a pixel, along each side: edges are smooth

const std::vector<SynthColour> kGrounds = {
    {"black", 12, 12, 12}, {"grey", 120, 120, 120}, {"brown", 90, 60, 40}};

// (0, 0) is the middle of the shape, 1 its reach; y grows downwards.
bool inside(const std::string& shape, double x, double y) {
  if (shape == "circle") return x * x + y * y <= 1;
  if (shape == "square") return std::abs(x) <= 0.85 && std::abs(y) <= 0.85;
  if (shape == "triangle") return y <= 0.85 && y >= -0.95 && std::abs(x) <= (y + 0.95) * 0.55;
  const bool upright = std::abs(x) <= 0.32 && std::abs(y) <= 1,
             lying = std::abs(y) <= 0.32 && std::abs(x) <= 1;
  return upright || lying;  // cross
}

template <class T>
const T& one_of(const std::vector<T>& list, Rng& rng) {
  return list[static_cast<size_t>(rng.integer(0, static_cast<int64_t>(list.size())))];
}

struct Place {
  const char* name;
  double x, y;  // of the picture's side
};
const std::vector<Place> kPlaces = {{"in the middle", 0.5, 0.5},
                                    {"on the left", 0.28, 0.5},
                                    {"on the right", 0.72, 0.5},
                                    {"at the top", 0.5, 0.28},
                                    {"at the bottom", 0.5, 0.72}};

}  // namespace

const std::vector<SynthColour>& synth_colours() {
  static const std::vector<SynthColour> list = {{"red", 220, 30, 30},     {"green", 30, 190, 50},
                                                {"blue", 40, 70, 230},    {"yellow", 240, 220, 40},
                                                {"purple", 160, 50, 190}, {"white", 245, 245, 245}};
  return list;
}

const std::vector<std::string>& synth_shape_names() {
  static const std::vector<std::string> list = {"circle", "square", "triangle", "cross"};
  return list;
}

SynthPicture synth_picture(uint64_t seed, int64_t index, int side_pixels) {
  require(side_pixels >= 8, "[synth] expected pictures of at least 8 pixels a side, got {}", side_pixels);
  Rng rng(random_key(seed, "synth picture", {static_cast<uint64_t>(index)}));
  const SynthColour& colour = one_of(synth_colours(), rng);
  const std::string& shape = one_of(synth_shape_names(), rng);
  const SynthColour& ground = one_of(kGrounds, rng);
  const Place& place = one_of(kPlaces, rng);
  const bool large = rng.uniform() < 0.5;
  const double reach = (large ? rng.uniform(0.22, 0.26) : rng.uniform(0.12, 0.15)) * side_pixels;
  const double x = (place.x + rng.uniform(-0.02, 0.02)) * side_pixels;
  const double y = (place.y + rng.uniform(-0.02, 0.02)) * side_pixels;

  SynthPicture made;
  made.colour = colour.name;
  made.shape = shape;
  made.caption = fmt::format("a {} {} {} {}, on {}", large ? "large" : "small", colour.name, shape,
                             place.name, ground.name);
  made.image = Image(side_pixels, side_pixels);
  const auto mixed = [](uint8_t over, uint8_t under, double share) {
    return static_cast<uint8_t>(std::lround(share * over + (1 - share) * under));
  };
  for (int row = 0; row < side_pixels; ++row)
    for (int column = 0; column < side_pixels; ++column) {
      int hits = 0;
      for (int part = 0; part < kSamplesAside * kSamplesAside; ++part) {
        const double right = column + (part % kSamplesAside + 0.5) / kSamplesAside;
        const double down = row + (part / kSamplesAside + 0.5) / kSamplesAside;
        hits += inside(shape, (right - x) / reach, (down - y) / reach) ? 1 : 0;
      }
      const double share = static_cast<double>(hits) / (kSamplesAside * kSamplesAside);
      uint8_t* const pixel =
          &made.image.rgb[3 * (static_cast<size_t>(row) * static_cast<size_t>(side_pixels) +
                               static_cast<size_t>(column))];
      pixel[0] = mixed(colour.red, ground.red, share);
      pixel[1] = mixed(colour.green, ground.green, share);
      pixel[2] = mixed(colour.blue, ground.blue, share);
    }
  return made;
}

namespace {

// Largest difference of a channel between a pixel and the ground.
int difference(const uint8_t* pixel, const std::array<uint8_t, 3>& ground) {
  int most = 0;
  for (size_t i = 0; i < 3; ++i) most = std::max(most, std::abs(int{pixel[i]} - int{ground[i]}));
  return most;
}

std::array<uint8_t, 3> median_colour(const Image& image) {
  std::array<uint8_t, 3> median{};
  for (size_t channel = 0; channel < 3; ++channel) {
    std::vector<uint8_t> values;
    for (size_t i = channel; i < image.rgb.size(); i += 3) values.push_back(image.rgb[i]);
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    median[channel] = *middle;
  }
  return median;
}

struct Patch {
  std::vector<int> pixels;  // row * width + column
  double left = 1e9, right = 0, top = 1e9, bottom = 0;
};

// The largest set of marked pixels that touch each other along their sides. Marks are used up.
Patch largest_patch(std::vector<bool> marked, int width, int height) {
  Patch largest;
  std::vector<int> open;
  for (int start = 0; start < width * height; ++start) {
    Patch patch;
    open.assign(marked[static_cast<size_t>(start)] ? 1 : 0, start);
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      if (!marked[static_cast<size_t>(at)]) continue;
      marked[static_cast<size_t>(at)] = false;
      patch.pixels.push_back(at);
      const int row = at / width, column = at % width;
      patch.left = std::min<double>(patch.left, column);
      patch.right = std::max<double>(patch.right, column + 1);
      patch.top = std::min<double>(patch.top, row);
      patch.bottom = std::max<double>(patch.bottom, row + 1);
      if (column > 0) open.push_back(at - 1);
      if (column + 1 < width) open.push_back(at + 1);
      if (row > 0) open.push_back(at - width);
      if (row + 1 < height) open.push_back(at + width);
    }
    if (patch.pixels.size() > largest.pixels.size()) largest = std::move(patch);
  }
  return largest;
}

// Of a shape's outline and a patch: what both cover over what either covers. Outlines as wide and high as the
// patch, and a little smaller and larger.
double fit(const std::string& shape, const Patch& patch, const std::vector<bool>& covered, int width,
           int height) {
  // Where a shape of reach 1 ends: to either side, above, below.
  const double side = shape == "square" ? 0.85 : shape == "triangle" ? 0.99 : 1;
  const double above = shape == "square" ? 0.85 : shape == "triangle" ? 0.95 : 1;
  const double below = shape == "square" || shape == "triangle" ? 0.85 : 1;
  const double wide = patch.right - patch.left, high = patch.bottom - patch.top;
  double best = 0;
  for (const double grown : {0.9, 1.0, 1.1}) {
    const double reach = grown * 0.5 * (wide / (2 * side) + high / (above + below));
    const double x = 0.5 * (patch.left + patch.right);
    const double y = 0.5 * (patch.top + patch.bottom) + 0.5 * (above - below) * reach;
    int64_t both = 0, either = 0;
    for (int row = 0; row < height; ++row)
      for (int column = 0; column < width; ++column) {
        const bool in_shape = inside(shape, (column + 0.5 - x) / reach, (row + 0.5 - y) / reach);
        const bool in_patch = covered[static_cast<size_t>(row * width + column)];
        both += in_shape && in_patch;
        either += in_shape || in_patch;
      }
    best = std::max(best, static_cast<double>(both) / static_cast<double>(std::max<int64_t>(either, 1)));
  }
  return best;
}

// The first of the names that the caption has as a word.
template <class Names>
std::string named_in(const std::string& caption, const Names& names) {
  for (const std::string& name : names)
    if ((" " + caption + " ").find(" " + name + " ") != std::string::npos) return name;
  fail("[shapes] the caption \"{}\" names none of the shapes and colours that `data synth` makes", caption);
}

}  // namespace

ShapeSeen see_shape(const Image& image) {
  constexpr int kFaint = 50;  // a difference below this is no shape
  constexpr double kWorstFit = 0.5;
  const auto ground = median_colour(image);
  const auto pixels = static_cast<size_t>(image.width) * static_cast<size_t>(image.height);
  int most = 0;
  for (size_t i = 0; i < pixels; ++i) most = std::max(most, difference(&image.rgb[3 * i], ground));
  if (most < kFaint) return {};
  std::vector<bool> marked(pixels);
  for (size_t i = 0; i < pixels; ++i) marked[i] = 2 * difference(&image.rgb[3 * i], ground) > most;
  const Patch patch = largest_patch(std::move(marked), image.width, image.height);

  std::vector<bool> covered(pixels, false);
  std::array<double, 3> colour{};
  for (const int at : patch.pixels) {
    covered[static_cast<size_t>(at)] = true;
    for (size_t i = 0; i < 3; ++i)
      colour[i] += image.rgb[3 * static_cast<size_t>(at) + i] / static_cast<double>(patch.pixels.size());
  }
  ShapeSeen seen;
  double nearest = 1e9, best = kWorstFit;
  for (const SynthColour& candidate : synth_colours()) {
    const double distance =
        std::hypot(colour[0] - candidate.red, colour[1] - candidate.green, colour[2] - candidate.blue);
    if (distance >= nearest) continue;
    nearest = distance;
    seen.colour = candidate.name;
  }
  for (const std::string& shape : synth_shape_names()) {
    const double fitting = fit(shape, patch, covered, image.width, image.height);
    if (fitting <= best) continue;
    best = fitting;
    seen.shape = shape;
  }
  return seen;
}

void ShapesRight::add(const Image& image, const std::string& caption) {
  std::vector<std::string> colours;
  for (const SynthColour& candidate : synth_colours()) colours.push_back(candidate.name);
  const std::string wanted_colour = named_in(caption, colours),
                    wanted_shape = named_in(caption, synth_shape_names());
  const ShapeSeen seen = see_shape(image);
  const bool right_colour = seen.colour == wanted_colour, right_shape = seen.shape == wanted_shape;
  ++pictures;
  colour += right_colour;
  shape += right_shape;
  both += right_colour && right_shape;
}

void synth_pictures(const SynthPictureOptions& options, const ProgressCallback& progress) {
  std::filesystem::create_directories(options.folder);
  const auto make = [&](int64_t index) {
    const SynthPicture made = synth_picture(options.seed, index, options.side_pixels);
    const std::string name = fmt::format("{}/picture_{:06}", options.folder, index);
    write_png(name + ".png", made.image);
    write_file_atomically(name + ".txt", made.caption + "\n");
  };
  for_each_parallel(options.count, make, progress);
}

}  // namespace melete
