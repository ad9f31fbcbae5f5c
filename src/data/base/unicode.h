// Text as code points, and what Unicode says about them.
#pragma once

#include <string>
#include <string_view>

namespace melete {

constexpr char32_t kBroken = 0xFFFD;  // stands for bytes that are no UTF-8

// Bytes that are no UTF-8 become kBroken.
std::u32string code_points(std::string_view utf8);
std::string utf8(std::u32string_view text);
void append_utf8(std::string& text, char32_t point);

// The length in bytes of the valid UTF-8 character at the front, and its code point; 0: there is none.
size_t read_utf8(std::string_view bytes, char32_t& point);

bool is_letter(char32_t point);  // general category L
bool is_number(char32_t point);  // general category N
bool is_space(char32_t point);   // White_Space

// In small letters; a sigma at the end of a word is the final one.
std::u32string lower(std::u32string_view text);
std::u32string upper(std::u32string_view text);
// Normalisation form C: letters and the marks that follow them become one character where there is one.
std::u32string compose(std::u32string_view text);
// Half and full width forms (U+FF01 and on, and the wide space) as ordinary characters.
std::u32string ordinary_width(std::u32string_view text);

// The character of a byte in Windows-1252; those it leaves open stand for themselves, as on the web.
char32_t from_windows_1252(unsigned char byte);

}  // namespace melete
