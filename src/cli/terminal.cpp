#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

namespace melete {
namespace {

constexpr auto redraw_every = std::chrono::milliseconds(100);

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

// The first `columns` columns of UTF-8 text without escape sequences.
std::string cut_to_width(const std::string& text, size_t columns) {
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) == 0x80) continue;
    if (seen++ == columns) break;
  }
  return text.substr(0, end);
}

bool looks_like_a_number(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) ||
                           (cell.size() > 1 && (cell[0] == '-' || cell[0] == '+' || cell[0] == '.') &&
                            (std::isdigit(static_cast<unsigned char>(cell[1])) || cell[1] == '.')));
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string space(width - std::min(width, display_width(text)), ' ');
  return right ? space + text : text + space;
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  return stream && ::isatty(::fileno(stream)) == 1;
}

int terminal_width(std::FILE* stream) {
  if (is_set("COLUMNS")) {
    const int columns = std::atoi(std::getenv("COLUMNS"));
    if (columns >= 20) return std::min(columns, 1000);
  }
  winsize size{};
  if (is_terminal(stream) && ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
    return size.ws_col;
  }
  return 100;
}

bool wants_colour(std::FILE* stream) {
  const char* kind = std::getenv("TERM");
  return is_terminal(stream) && !is_set("NO_COLOR") && !(kind && std::string_view(kind) == "dumb");
}

std::string coloured(std::string_view text, Colour colour, bool wanted) {
  if (!wanted || colour == Colour::plain) return std::string(text);
  const char* code = "";
  switch (colour) {
    case Colour::plain:
      break;
    case Colour::bold:
      code = "1";
      break;
    case Colour::dim:
      code = "2";
      break;
    case Colour::red:
      code = "31";
      break;
    case Colour::green:
      code = "32";
      break;
    case Colour::yellow:
      code = "33";
      break;
    case Colour::cyan:
      code = "36";
      break;
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size() - 1);
    } else if ((text[i] & 0xC0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::string progress_line(const std::string& label, int64_t done, int64_t total, const std::string& unit,
                          double seconds_so_far, const std::string& suffix, int width) {
  std::string tail = suffix.empty() ? "" : "  " + suffix;
  if (total <= 0)
    return cut_to_width(fmt::format("{}  {} {}{}", label, done, unit, tail), static_cast<size_t>(width));
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const std::string time = done >= total ? human_seconds(seconds_so_far)
                           : done > 0    ? human_seconds(seconds_so_far * (1 - share) / share) + " left"
                                         : "";
  const std::string front = fmt::format("{} {:>3.0f}% ", label, std::floor(share * 100));
  const std::string back =
      fmt::format(" {}/{} {}{}{}{}", done, total, unit, time.empty() ? "" : "  ", time, tail);
  const auto room =
      static_cast<int64_t>(width) - static_cast<int64_t>(display_width(front) + display_width(back)) - 2;
  std::string bar;
  if (room >= 5) {
    const auto cells = static_cast<size_t>(std::min<int64_t>(room, 40));
    const auto filled = static_cast<size_t>(share * static_cast<double>(cells));
    bar = std::string(filled, '=') + (filled < cells ? ">" : "");
    bar.resize(cells, ' ');
    bar = "[" + bar + "]";
  }
  return cut_to_width(front + bar + back, static_cast<size_t>(width));
}

ProgressBar::ProgressBar(std::string label, int64_t total, std::string unit, std::FILE* stream)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      stream_(stream),
      terminal_(is_terminal(stream)),
      start_(std::chrono::steady_clock::now()),
      last_draw_(start_ - std::chrono::hours(1)) {}

ProgressBar::~ProgressBar() {
  finish();
}

double ProgressBar::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ProgressBar::draw() {
  const int width = terminal_width(stream_) - 1;  // the last column would wrap on some terminals
  fmt::print(stream_, "\r\x1b[K{}", progress_line(label_, done_, total_, unit_, seconds(), suffix_, width));
  std::fflush(stream_);
  drawn_ = true;
}

void ProgressBar::update(int64_t done, const std::string& suffix) {
  done_ = done;
  suffix_ = suffix;
  finished_ = false;
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    if (now - last_draw_ < redraw_every && done != total_) return;
    last_draw_ = now;
    draw();
    return;
  }
  const int64_t tenth = total_ > 0 ? std::min<int64_t>(10, done * 10 / total_) : last_tenth_;
  const bool long_silence = total_ <= 0 && now - last_draw_ > std::chrono::seconds(10);
  if (tenth <= last_tenth_ && !long_silence) return;
  last_tenth_ = tenth;
  last_draw_ = now;
  const std::string tail = suffix.empty() ? "" : "  " + suffix;
  if (total_ > 0) {
    fmt::print(stream_, "{}: {}% ({}/{} {}, {}){}\n", label_, tenth * 10, done, total_, unit_,
               human_seconds(seconds()), tail);
  } else {
    fmt::print(stream_, "{}: {} {} ({}){}\n", label_, done, unit_, human_seconds(seconds()), tail);
  }
  std::fflush(stream_);
}

void ProgressBar::finish() {
  if (finished_) return;
  finished_ = true;
  if (!terminal_ || !drawn_) return;
  draw();
  fmt::print(stream_, "\n");
  std::fflush(stream_);
  drawn_ = false;
}

void ProgressBar::print(const std::string& line) {
  if (terminal_ && drawn_) fmt::print(stream_, "\r\x1b[K");
  fmt::print(stream_, "{}\n", line);
  if (terminal_ && drawn_) draw();
  std::fflush(stream_);
}

TextTable::TextTable(std::vector<std::string> headers) : headers_(std::move(headers)) {}

void TextTable::row(std::vector<std::string> cells) {
  cells.resize(headers_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<size_t> widths;
  std::vector<bool> right;
  for (size_t column = 0; column < headers_.size(); ++column) {
    size_t width = display_width(headers_[column]), words = 0, numbers = 0;
    for (const auto& cells : rows_) {
      width = std::max(width, display_width(cells[column]));
      // "-" stands for "nothing here" in a column of either kind.
      if (cells[column].empty() || cells[column] == "-") continue;
      ++(looks_like_a_number(cells[column]) ? numbers : words);
    }
    widths.push_back(width);
    right.push_back(numbers > 0 && words == 0);
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t column = 0; column < cells.size(); ++column) {
      line += (column ? "  " : "") + padded(cells[column], widths[column], right[column]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  const bool titled =
      std::any_of(headers_.begin(), headers_.end(), [](const auto& title) { return !title.empty(); });
  if (titled) {
    add(headers_);
    std::vector<std::string> rules;
    for (const size_t width : widths) rules.emplace_back(width, '-');
    add(rules);
  }
  for (const auto& cells : rows_) add(cells);
  return out;
}

}  // namespace melete
