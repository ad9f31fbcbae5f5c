// What a model was trained with must be what it is used with.
#pragma once

#include <string>

namespace melete {

// Refuses another model than the one that `path` was trained with. what: "VQ-GAN"; then: the identity that
// `path` remembers, empty where it does not say; now: that of the model at hand; flag: names another,
// "--vqgan".
void require_trained_with(const std::string& path, const std::string& what, const std::string& then,
                          const std::string& now, const std::string& flag);

}  // namespace melete
