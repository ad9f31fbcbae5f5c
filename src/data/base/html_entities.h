// "&eacute;" and "&#233;" as the characters they stand for.
#pragma once

#include <string>
#include <string_view>

namespace melete {

// As browsers read text: names that need no semicolon are known without one, numbers that mean Windows-1252
// are taken so.
std::u32string unescape_html(std::u32string_view text);

// Only what ends with a semicolon, but also names that were written in capitals ("&EACUTE;").
std::u32string unescape_whole_entities(std::u32string_view text);

}  // namespace melete
