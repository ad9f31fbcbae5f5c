#include "run/pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "core/base/error.h"
#include "run/font.h"

namespace melete {

namespace {

constexpr Rgb kInk{32, 32, 40}, kGrid{224, 224, 230}, kFrame{120, 120, 130}, kMissing{236, 236, 240};
constexpr int kGlyphWidth = 5, kGlyphHeight = 9, kCapHeight = 7;

void blend(Image& image, int x, int y, Rgb colour, double cover = 1) {
  if (x < 0 || y < 0 || x >= image.width || y >= image.height || cover <= 0) return;
  uint8_t* pixel =
      &image.rgb[(static_cast<size_t>(y) * static_cast<size_t>(image.width) + static_cast<size_t>(x)) * 3];
  const uint8_t channels[3] = {colour.red, colour.green, colour.blue};
  for (int c = 0; c < 3; ++c)
    pixel[c] = static_cast<uint8_t>(std::lround(pixel[c] + (channels[c] - pixel[c]) * std::min(cover, 1.0)));
}

void fill(Image& image, int x, int y, int width, int height, Rgb colour) {
  for (int row = y; row < y + height; ++row)
    for (int column = x; column < x + width; ++column) blend(image, column, row, colour);
}

void outline(Image& image, int x, int y, int width, int height, Rgb colour) {
  fill(image, x, y, width, 1, colour);
  fill(image, x, y + height - 1, width, 1, colour);
  fill(image, x, y, 1, height, colour);
  fill(image, x + width - 1, y, 1, height, colour);
}

bool dot(size_t glyph, int x, int y) {
  if (x < 0 || y < 0 || x >= kGlyphWidth || y >= kGlyphHeight) return false;
  return (kFont[glyph][static_cast<size_t>(y)] >> (kGlyphWidth - 1 - x)) & 1;
}

// At even scales each dot becomes four, whose corners follow the neighbours: diagonals lose their stairs.
bool smooth_dot(size_t glyph, int x2, int y2) {
  const int x = x2 / 2, y = y2 / 2, dx = x2 % 2 ? 1 : -1, dy = y2 % 2 ? 1 : -1;
  const bool side = dot(glyph, x + dx, y), other_side = dot(glyph, x - dx, y);
  const bool near = dot(glyph, x, y + dy), far = dot(glyph, x, y - dy);
  return side == near && side != far && near != other_side ? side : dot(glyph, x, y);
}

// `rotated`: reads from bottom to top; (x, y) is then the lower left corner of the turned text.
void draw_glyphs(Image& image, int x, int y, const std::string& text, int scale, Rgb colour, bool rotated) {
  int pen = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;  // the rest of a UTF-8 character
    const bool known = c >= ' ' && c <= '~';
    const bool smooth =
        scale % 2 == 0 && c != '[' && c != ']' && c != '{' && c != '}';  // these keep their corners
    for (int v = 0; v < kGlyphHeight * scale; ++v)
      for (int u = 0; u < kGlyphWidth * scale; ++u) {
        bool on;
        if (!known) {
          const int column = u / scale, row = v / scale;
          on = row < kCapHeight && (column == 0 || column == 4 || row == 0 || row == kCapHeight - 1);
        } else if (smooth) {
          on = smooth_dot(static_cast<size_t>(c - ' '), u / (scale / 2), v / (scale / 2));
        } else {
          on = dot(static_cast<size_t>(c - ' '), u / scale, v / scale);
        }
        if (!on) continue;
        if (rotated)
          blend(image, x + v, y - pen - u, colour);
        else
          blend(image, x + pen + u, y + v, colour);
      }
    pen += (kGlyphWidth + 1) * scale;
  }
}

enum class Align { left, centre, right };

void label(Image& image, int x, int y, const std::string& text, int scale, Align align, Rgb colour = kInk) {
  const int width = text_width(text, scale);
  draw_text(image,
            align == Align::left    ? x
            : align == Align::right ? x - width
                                    : x - width / 2,
            y, text, scale, colour);
}

// Both ends of a long name tell more than its middle.
std::string shortened(const std::string& text, int scale, int room) {
  if (text_width(text, scale) <= room) return text;
  const size_t letters = static_cast<size_t>(std::max(room / ((kGlyphWidth + 1) * scale) - 3, 2));
  if (letters >= text.size()) return text;
  return text.substr(0, letters - letters / 2) + "..." + text.substr(text.size() - letters / 2);
}

// A line with soft edges, only inside the box.
struct Box {
  int x, y, width, height;
};

void draw_line(Image& image, const Box& box, double x0, double y0, double x1, double y1, double thickness,
               Rgb colour) {
  const double reach = thickness / 2 + 1, dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
  const int left = std::max(box.x, static_cast<int>(std::floor(std::min(x0, x1) - reach)));
  const int right = std::min(box.x + box.width - 1, static_cast<int>(std::ceil(std::max(x0, x1) + reach)));
  const int top = std::max(box.y, static_cast<int>(std::floor(std::min(y0, y1) - reach)));
  const int bottom = std::min(box.y + box.height - 1, static_cast<int>(std::ceil(std::max(y0, y1) + reach)));
  for (int y = top; y <= bottom; ++y)
    for (int x = left; x <= right; ++x) {
      const double along =
          length2 > 0 ? std::clamp(((x - x0) * dx + (y - y0) * dy) / length2, 0.0, 1.0) : 0.0;
      blend(image, x, y, colour, thickness / 2 + 0.5 - std::hypot(x - x0 - along * dx, y - y0 - along * dy));
    }
}

// Round numbers (1, 2 or 5 times a power of ten) from low to high, about `count` of them.
std::vector<double> ticks(double low, double high, int count) {
  const double raw = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double rest = raw / power;
  const double spacing = power * (rest <= 1.0001 ? 1 : rest <= 2.0001 ? 2 : rest <= 5.0001 ? 5 : 10);
  std::vector<double> result;
  for (double i = std::ceil(low / spacing - 1e-9); i * spacing <= high + spacing * 1e-9; ++i)
    result.push_back(i * spacing == 0 ? 0 : i * spacing);
  return result;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> result;
  const bool few = std::log10(high / low) < 2.5;
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::ceil(std::log10(high));
       ++power)
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10.0, power);
      if ((digit == 1 || few) && value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9))
        result.push_back(value);
    }
  return result;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return fmt::format("{:.3g}", value);
  if (size >= 1e4) return fmt::format("{:.6g}k", value / 1000);
  return fmt::format("{:.6g}", value);
}

void transform(std::vector<std::complex<float>>& data) {  // in place, radix 2
  const size_t count = data.size();
  for (size_t i = 1, j = 0; i < count; ++i) {
    size_t bit = count >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(data[i], data[j]);
  }
  for (size_t span = 2; span <= count; span *= 2)
    for (size_t k = 0; k < span / 2; ++k) {
      const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(span);
      const std::complex<float> turn(static_cast<float>(std::cos(angle)),
                                     static_cast<float>(std::sin(angle)));
      for (size_t start = k; start < count; start += span) {
        const std::complex<float> odd = data[start + span / 2] * turn;
        data[start + span / 2] = data[start] - odd;
        data[start] += odd;
      }
    }
}

// Mean power of the cells that a pixel covers, in dB; a pixel smaller than a cell shows that cell.
struct Cells {
  size_t begin, end;
};
Cells cells_of(int pixel, double cells_per_pixel, size_t count) {
  const size_t begin = std::min(static_cast<size_t>(pixel * cells_per_pixel), count - 1);
  const size_t end = static_cast<size_t>((pixel + 1) * cells_per_pixel);
  return {begin, std::clamp(end, begin + 1, count)};
}

void draw_spectrogram(Image& image, const Box& box, std::span<const float> samples, size_t samples_shown,
                      SpectrogramStyle style, double top_db) {
  fill(image, box.x, box.y, box.width, box.height, kMissing);
  if (samples.empty()) return;
  const std::vector<std::vector<float>> frames = spectrogram_db(samples, style);
  const double frames_per_pixel =
      static_cast<double>(samples_shown) / style.hop_samples / static_cast<double>(box.width);
  const size_t bins = frames.front().size();
  const double bins_per_pixel = static_cast<double>(bins) / box.height;
  const int last = static_cast<int>(
      std::ceil(static_cast<double>(samples.size()) * box.width / static_cast<double>(samples_shown)));
  for (int column = 0; column < std::min(box.width, last); ++column) {
    const Cells time = cells_of(column, frames_per_pixel, frames.size());
    for (int row = 0; row < box.height; ++row) {
      const Cells pitch = cells_of(row, bins_per_pixel, bins);
      double power = 0;
      for (size_t f = time.begin; f < time.end; ++f)
        for (size_t b = pitch.begin; b < pitch.end; ++b) power += std::pow(10.0, frames[f][b] / 10);
      power /= static_cast<double>((time.end - time.begin) * (pitch.end - pitch.begin));
      const double db = 10 * std::log10(power + 1e-30);
      blend(image, box.x + column, box.y + box.height - 1 - row, viridis(1 + (db - top_db) / style.range_db));
    }
  }
}

}  // namespace

Rgb viridis(double position) {
  // Nine stations of a map whose lightness rises evenly from dark blue to yellow.
  constexpr std::array<std::array<double, 3>, 9> kStations{{{68, 1, 84},
                                                            {71, 44, 122},
                                                            {59, 81, 139},
                                                            {44, 113, 142},
                                                            {33, 144, 141},
                                                            {39, 173, 129},
                                                            {92, 200, 99},
                                                            {170, 220, 50},
                                                            {253, 231, 37}}};
  const double place = (position > 0 ? std::min(position, 1.0) : 0.0) * (kStations.size() - 1);
  const size_t first = std::min(static_cast<size_t>(place), kStations.size() - 2);
  const double part = place - static_cast<double>(first);
  std::array<uint8_t, 3> mixed{};
  for (size_t c = 0; c < 3; ++c)
    mixed[c] =
        static_cast<uint8_t>(std::lround(kStations[first][c] * (1 - part) + kStations[first + 1][c] * part));
  return {mixed[0], mixed[1], mixed[2]};
}

Rgb series_colour(size_t index) {
  constexpr std::array<Rgb, 8> kColours{{{0, 114, 178},
                                         {213, 94, 0},
                                         {0, 158, 115},
                                         {204, 121, 167},
                                         {86, 180, 233},
                                         {230, 159, 0},
                                         {90, 90, 90},
                                         {120, 60, 160}}};
  return kColours[index % kColours.size()];
}

int text_width(const std::string& text, int scale) {
  int letters = 0;
  for (const char c : text) letters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return letters == 0 ? 0 : (letters * (kGlyphWidth + 1) - 1) * scale;
}

void draw_text(Image& image, int x, int y, const std::string& text, int scale, Rgb colour) {
  draw_glyphs(image, x, y, text, scale, colour, false);
}

std::vector<std::vector<float>> spectrogram_db(std::span<const float> samples,
                                               const SpectrogramStyle& style) {
  const int window = style.window_samples, hop = style.hop_samples;
  require(window >= 16 && (window & (window - 1)) == 0 && hop > 0,
          "[spectrogram] expected a window of 2^n samples (16 or more) and a hop above 0, got {} and {}",
          window, hop);
  std::vector<float> shape(static_cast<size_t>(window));
  double sum = 0;
  for (int i = 0; i < window; ++i) {
    shape[static_cast<size_t>(i)] =
        static_cast<float>(0.5 - 0.5 * std::cos(2 * std::numbers::pi * i / window));
    sum += shape[static_cast<size_t>(i)];
  }
  const int64_t count = static_cast<int64_t>(samples.size());
  std::vector<std::vector<float>> frames(static_cast<size_t>(count / hop + 1));
  std::vector<std::complex<float>> data(static_cast<size_t>(window));
  for (size_t f = 0; f < frames.size(); ++f) {
    const int64_t begin = static_cast<int64_t>(f) * hop - window / 2;
    for (int i = 0; i < window; ++i) {
      const int64_t at = begin + i;
      const float value = at >= 0 && at < count ? samples[static_cast<size_t>(at)] : 0.0f;
      data[static_cast<size_t>(i)] = std::isfinite(value) ? value * shape[static_cast<size_t>(i)] : 0.0f;
    }
    transform(data);
    frames[f].resize(static_cast<size_t>(window / 2 + 1));
    for (size_t b = 0; b < frames[f].size(); ++b)
      frames[f][b] = static_cast<float>(20 * std::log10(std::abs(data[b]) * 2 / sum + 1e-10));
  }
  return frames;
}

Image spectrogram_pair(const std::string& title, std::span<const float> original,
                       std::span<const float> reconstruction, int rate_hz, const SpectrogramStyle& style) {
  require(rate_hz > 0, "[spectrogram] expected a sample rate above 0, got {}", rate_hz);
  constexpr int kLeft = 90, kWide = 900, kHigh = 270, kTop = 76, kGap = 58, kBar = 150, kBelow = 74;
  Image image(kLeft + kWide + kBar, kTop + kHigh + kGap + kHigh + kBelow);
  const size_t shown = std::max<size_t>({original.size(), reconstruction.size(), 1});

  SpectrogramStyle fine = style;  // short sounds: frames as close as the pixels are
  fine.hop_samples = std::clamp(static_cast<int>(shown / kWide), 1, std::max(style.hop_samples, 1));
  float peak = -200;
  for (const auto& frame : spectrogram_db(original, fine))
    for (const float db : frame) peak = std::max(peak, db);
  const double top_db = peak < -120 ? 0 : std::ceil(peak / 5.0) * 5;  // silence has no loudest point

  label(image, kLeft, 14, shortened(title, 2, image.width - kLeft - 10), 2, Align::left);
  const double seconds = static_cast<double>(shown) / rate_hz, nyquist_khz = rate_hz / 2000.0;
  const std::pair<const char*, std::span<const float>> panels[] = {{"original", original},
                                                                   {"reconstruction", reconstruction}};
  for (int p = 0; p < 2; ++p) {
    const Box box{kLeft, kTop + p * (kHigh + kGap), kWide, kHigh};
    draw_spectrogram(image, box, panels[p].second, shown, fine, top_db);
    outline(image, box.x - 1, box.y - 1, box.width + 2, box.height + 2, kFrame);
    label(image, box.x, box.y - 24, panels[p].first, 2, Align::left);
    for (const double khz : ticks(0, nyquist_khz, 5)) {
      const int y =
          box.y + box.height - 1 - static_cast<int>(std::lround(khz / nyquist_khz * (box.height - 1)));
      fill(image, box.x - 7, y, 6, 1, kFrame);
      label(image, box.x - 12, y - 7, tick_text(khz), 2, Align::right);
    }
    draw_glyphs(image, 14, box.y + box.height / 2 + text_width("kHz", 2) / 2, "kHz", 2, kInk, true);
    for (const double second : ticks(0, seconds, 8)) {
      const int x = box.x + static_cast<int>(std::lround(second / seconds * (box.width - 1)));
      fill(image, x, box.y + box.height + 1, 1, 6, kFrame);
      if (p == 1) label(image, x, box.y + box.height + 12, tick_text(second), 2, Align::centre);
    }
    if (p == 1) label(image, box.x + box.width / 2, box.y + box.height + 42, "seconds", 2, Align::centre);
  }
  const Box bar{kLeft + kWide + 28, kTop, 22, 2 * kHigh + kGap};
  for (int row = 0; row < bar.height; ++row)
    fill(image, bar.x, bar.y + row, bar.width, 1, viridis(1 - static_cast<double>(row) / (bar.height - 1)));
  outline(image, bar.x - 1, bar.y - 1, bar.width + 2, bar.height + 2, kFrame);
  label(image, bar.x, bar.y - 24, "dB", 2, Align::left);
  for (const double db : ticks(top_db - style.range_db, top_db, 8)) {
    const int y = bar.y + static_cast<int>(std::lround((top_db - db) / style.range_db * (bar.height - 1)));
    fill(image, bar.x + bar.width + 1, y, 6, 1, kFrame);
    label(image, bar.x + bar.width + 12, y - 7, tick_text(db), 2, Align::left);
  }
  return image;
}

namespace {

// One axis: from a value to a place in 0..1.
struct Axis {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool logarithmic = false;

  bool usable(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  void see(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void settle() {  // a little room around the data, and a range even for none or one point
    if (low > high) low = logarithmic ? 0.1 : 0, high = 1;
    if (logarithmic) {
      const double factor = std::max(std::pow(high / low, 0.04), 1.05);
      low /= factor, high *= factor;
    } else {
      const double room = high > low ? (high - low) * 0.04 : std::max(std::abs(high) * 0.1, 0.5);
      low = low >= 0 && low < room * 2 ? 0 : low - room;  // an axis that almost reaches zero shows it
      high += room;
    }
  }
  double place(double value) const {
    return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  }
  std::vector<double> marks(int count) const {
    return logarithmic ? log_ticks(low, high) : ticks(low, high, count);
  }
};

}  // namespace

Image plot(const PlotStyle& style, const std::vector<Series>& series) {
  Image image(std::max(style.width, 320), std::max(style.height, 240));
  Axis across, up;
  across.logarithmic = style.log_x;
  up.logarithmic = style.log_y;
  for (const Series& s : series) {
    require(s.x.size() == s.y.size(), "[plot] series '{}' has {} x values and {} y values", s.name,
            s.x.size(), s.y.size());
    for (size_t i = 0; i < s.x.size(); ++i)
      if (across.usable(s.x[i]) && up.usable(s.y[i])) across.see(s.x[i]), up.see(s.y[i]);
  }
  across.settle();
  up.settle();

  // Margins as wide as what stands in them.
  const std::vector<double> y_marks = up.marks(7);
  int tick_room = 0, legend_room = 0;
  for (const double mark : y_marks) tick_room = std::max(tick_room, text_width(tick_text(mark), 2));
  const bool legend = series.size() > 1 || (series.size() == 1 && !series[0].name.empty());
  if (legend)
    for (const Series& s : series) legend_room = std::max(legend_room, text_width(s.name, 2) + 60);
  legend_room = std::min(legend_room, image.width / 3);
  Box box{20 + (style.y_label.empty() ? 0 : 30) + tick_room, style.title.empty() ? 20 : 52, 0, 0};
  box.width = image.width - box.x - 28 - legend_room;
  box.height = image.height - box.y - 40 - (style.x_label.empty() ? 0 : 34);

  const auto x_of = [&](double value) { return box.x + across.place(value) * (box.width - 1); };
  const auto y_of = [&](double value) { return box.y + (1 - up.place(value)) * (box.height - 1); };
  for (const double mark : y_marks) {
    const int y = static_cast<int>(std::lround(y_of(mark)));
    fill(image, box.x, y, box.width, 1, kGrid);
    label(image, box.x - 10, y - 7, tick_text(mark), 2, Align::right);
  }
  int free_from = 0;
  for (const double mark : across.marks(std::max(box.width / 110, 2))) {
    const int x = static_cast<int>(std::lround(x_of(mark)));
    fill(image, x, box.y, 1, box.height, kGrid);
    const std::string text = tick_text(mark);
    const int half = text_width(text, 2) / 2;
    if (x - half < free_from || x + half >= image.width) continue;
    label(image, x, box.y + box.height + 10, text, 2, Align::centre);
    free_from = x + half + 12;
  }
  outline(image, box.x - 1, box.y - 1, box.width + 2, box.height + 2, kFrame);
  label(image, box.x, 16, shortened(style.title, 2, image.width - box.x - 10), 2, Align::left);
  label(image, box.x + box.width / 2, image.height - 30, shortened(style.x_label, 2, box.width), 2,
        Align::centre);
  const std::string side = shortened(style.y_label, 2, box.height);
  draw_glyphs(image, 12, box.y + box.height / 2 + text_width(side, 2) / 2, side, 2, kInk, true);

  for (size_t n = 0; n < series.size(); ++n) {
    const Series& s = series[n];
    const Rgb colour = series_colour(n);
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!across.usable(s.x[i]) || !up.usable(s.y[i])) continue;
      const double x = x_of(s.x[i]), y = y_of(s.y[i]);
      if (s.line && i > 0 && across.usable(s.x[i - 1]) && up.usable(s.y[i - 1]))
        draw_line(image, box, x_of(s.x[i - 1]), y_of(s.y[i - 1]), x, y, 2.2, colour);
      if (s.markers || !s.line) draw_line(image, box, x, y, x, y, 9, colour);
      if (i < s.labels.size() && !s.labels[i].empty()) {
        const int width = text_width(s.labels[i], 2), at_x = static_cast<int>(x), at_y = static_cast<int>(y);
        const bool fits = at_x + 10 + width < box.x + box.width;
        const int text_y = std::clamp(at_y - 22, box.y + 2, box.y + box.height - 20);
        label(image, fits ? at_x + 10 : at_x - 10, text_y, s.labels[i], 2, fits ? Align::left : Align::right,
              colour);
      }
    }
    if (!legend) continue;
    const int x = box.x + box.width + 18, y = box.y + 12 + static_cast<int>(n) * 26;
    if (y + 20 > image.height) continue;
    const Box everywhere{0, 0, image.width, image.height};
    if (s.line) draw_line(image, everywhere, x, y, x + 22, y, 2.6, colour);
    if (s.markers || !s.line) draw_line(image, everywhere, x + 11, y, x + 11, y, 9, colour);
    label(image, x + 32, y - 7, shortened(s.name, 2, legend_room - 52), 2, Align::left);
  }
  return image;
}

}  // namespace melete
