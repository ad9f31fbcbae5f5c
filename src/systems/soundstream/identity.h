// Under which names a SoundStream is remembered.
#pragma once

#include <string>
#include <vector>

#include "nn/identity.h"
#include "systems/soundstream/soundstream.h"

namespace melete {

// Two codecs with the same one make the same codes.
std::string soundstream_identity(const SoundStreamImpl& model);

// Of its frames of real numbers, whatever the order of the codes is.
std::string latents_identity(const SoundStreamImpl& model);

// What token files (.tokens) of older programs call it: those had an identity of their own.
std::vector<std::string> former_file_identities(const SoundStreamImpl& model);

}  // namespace melete
