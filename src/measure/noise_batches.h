// The same batch for ever, so that what is timed is the step.
#pragma once

#include "data/loader.h"

namespace melete {

class NoiseBatches : public BatchSource {
 public:
  explicit NoiseBatches(Batch batch) : batch_(std::move(batch)) {}
  Batch batch(int64_t number) override {
    batch_.number = number;
    return batch_;
  }

 private:
  Batch batch_;
};

}  // namespace melete
