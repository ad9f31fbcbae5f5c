#include "studio/page.h"

extern "C" const char melete_studio_page_begin[];
extern "C" const char melete_studio_page_end[];

namespace melete {

std::string_view studio_page() {
  return {melete_studio_page_begin, static_cast<size_t>(melete_studio_page_end - melete_studio_page_begin)};
}

}  // namespace melete
