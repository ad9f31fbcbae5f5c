// What the options of c10d's store have in some versions of LibTorch only.
#pragma once

namespace melete {

// Newer versions ask for libuv, which Debian's LibTorch is built without.
template <class Options>
void without_libuv(Options& options) {
  if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
}

}  // namespace melete
