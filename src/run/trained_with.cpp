#include "run/trained_with.h"

#include "core/base/error.h"

namespace melete {

void require_trained_with(const std::string& path, const std::string& what, const std::string& then,
                          const std::string& now, const std::string& flag) {
  require(
      then.empty() || then == now,
      "[{}] {} was trained with another one than this (identities {} and {}); where a run has gone on since, "
      "give its checkpoint of then: {} RUN/checkpoints/step_N.safetensors",
      what, path, then, now, flag);
}

}  // namespace melete
