// Numbers as people read them.
#pragma once

#include <string>

namespace melete {

std::string human_bytes(double bytes);      // 1.5 MB (powers of 1000)
std::string human_seconds(double seconds);  // 340 ms, 12.3 s, 4 m 05 s, 2 h 07 m, 3 d 04 h
std::string human_count(double count);      // 950, 12.3 k, 4.56 M
std::string short_number(double value);     // at most 7 characters (8 when negative): 0.1234, 123.46, 1.2e-05

}  // namespace melete
