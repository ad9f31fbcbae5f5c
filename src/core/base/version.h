// The version of this build, as CMakeLists.txt states it.
#pragma once

namespace melete {

const char* version();  // "0.1.0"

}  // namespace melete
