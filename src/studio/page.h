// The page, as it was built from web/ into one file. See page.S.
#pragma once

#include <string_view>

namespace melete {

std::string_view studio_page();

}  // namespace melete
