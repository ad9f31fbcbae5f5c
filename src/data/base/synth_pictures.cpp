#include "data/base/synth_pictures.h"

#include <cmath>
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
