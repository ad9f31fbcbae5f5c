// What a person looks at: width and colours of the terminal, progress, tables, short numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/human.h"

namespace melete {

bool is_terminal(std::FILE* stream);
int terminal_width(
    std::FILE* stream = stderr);  // $COLUMNS or what the terminal says; 100 where there is none

enum class Colour { plain, bold, dim, red, green, yellow, cyan };
bool wants_colour(std::FILE* stream);  // a terminal that is not dumb, and NO_COLOR is unset
std::string coloured(std::string_view text, Colour colour, bool wanted);

// Columns that UTF-8 text takes on the screen, colours not counted.
size_t display_width(std::string_view text);

// "label  37% [=======>      ] 37/100 files  12.3 s left  suffix", cut to width. A total of 0 is unknown.
std::string progress_line(const std::string& label, int64_t done, int64_t total, const std::string& unit,
                          double seconds_so_far, const std::string& suffix, int width);

// A bar with the time left on a terminal; elsewhere a plain line at every tenth of the way.
class ProgressBar {
 public:
  ProgressBar(std::string label, int64_t total, std::string unit, std::FILE* stream = stderr);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, const std::string& suffix = "");
  void finish();                        // leaves the last state on the screen and ends the line
  void print(const std::string& line);  // a line above the bar

 private:
  double seconds() const;
  void draw();

  std::string label_, unit_, suffix_;
  int64_t total_, done_ = 0, last_tenth_ = 0;
  std::FILE* stream_;
  bool terminal_, drawn_ = false, finished_ = false;
  std::chrono::steady_clock::time_point start_, last_draw_;
};

// Columns aligned, numbers to the right, words to the left.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headers);
  void row(std::vector<std::string> cells);  // missing cells are empty
  std::string text() const;                  // with a newline after every row

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace melete
