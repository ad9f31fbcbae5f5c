#include "core/base/version.h"

namespace melete {

const char* version() {
  return MELETE_VERSION;
}

}  // namespace melete
