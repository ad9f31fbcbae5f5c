// Pictures that a person looks at during a run: spectrogram pairs and plots, drawn without any plotting
// library.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/base/png.h"

namespace melete {

struct Rgb {
  uint8_t red = 0, green = 0, blue = 0;
};

Rgb viridis(double position);     // 0: dark blue ... 1: yellow
Rgb series_colour(size_t index);  // distinct ones for lines, also for readers who see few colours

struct SpectrogramStyle {
  int window_samples = 1024;
  int hop_samples = 256;
  double range_db = 80;  // below the loudest point of the original
};

// Power in dB relative to a full-scale sine. [frames][window / 2 + 1]
std::vector<std::vector<float>> spectrogram_db(std::span<const float> samples, const SpectrogramStyle& style);

// Original above, reconstruction below, one colour scale for both, axes in seconds and kHz.
Image spectrogram_pair(const std::string& title, std::span<const float> original,
                       std::span<const float> reconstruction, int rate_hz,
                       const SpectrogramStyle& style = {});

struct Series {
  std::string name;
  std::vector<double> x, y;  // points that are not finite leave a gap
  bool line = true;
  bool markers = false;
  std::vector<std::string> labels;  // beside the points, where not empty
};

struct PlotStyle {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  int width = 1000, height = 640;
};

Image plot(const PlotStyle& style, const std::vector<Series>& series);

// Text in the built-in font; `scale` multiplies its 5 x 9 grid. Characters outside ASCII are drawn as boxes.
int text_width(const std::string& text, int scale);
void draw_text(Image& image, int x, int y, const std::string& text, int scale, Rgb colour);

}  // namespace melete
