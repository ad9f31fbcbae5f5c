#include "core/base/human.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <iterator>

namespace melete {

namespace {

// Three significant digits: 1.23, 12.3, 123.
std::string three_digits(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

std::string with_prefix(double value, const char* const* prefixes, size_t count) {
  size_t index = 0;
  while (std::abs(value) >= 999.5 && index + 1 < count) value /= 1000, ++index;
  const bool whole = index == 0 && std::trunc(value) == value;
  return fmt::format("{}{}{}", whole ? fmt::format("{:.0f}", value) : three_digits(value),
                     *prefixes[index] ? " " : "", prefixes[index]);
}

}  // namespace

std::string human_bytes(double bytes) {
  static const char* const prefixes[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  return with_prefix(bytes, prefixes, std::size(prefixes));
}

std::string human_count(double count) {
  static const char* const prefixes[] = {"", "k", "M", "G", "T"};
  return with_prefix(count, prefixes, std::size(prefixes));
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const double size = std::abs(seconds);
  if (size == 0) return "0 s";
  if (size < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (size < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} m", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

std::string short_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 99999.5 || size < 9.995e-4) return fmt::format("{:.1e}", value);
  const int decimals = size < 9.99995 ? 4 : size < 99.9995 ? 3 : size < 999.995 ? 2 : size < 9999.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace melete
