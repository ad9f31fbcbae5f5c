// English as it is said: numbers, dates, times, amounts and abbreviations written out. What is not English
// or not known stays as it is, in any script.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace melete {

std::string spoken_english(std::string_view text);

std::string number_in_words(int64_t number);   // 1042: "one thousand forty-two"
std::string ordinal_in_words(int64_t number);  // 21: "twenty-first"
std::string year_in_words(int64_t year);       // 1905: "nineteen oh five"

}  // namespace melete
