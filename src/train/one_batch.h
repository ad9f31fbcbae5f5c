// The first check of any data and model: one batch, trained on alone. A model that cannot learn even that by
// heart has something wrong with it, with its settings or with what it is given.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "data/loader.h"
#include "dist/group.h"
#include "run/reporter.h"
#include "train/task.h"
#include "train/trainer_config.h"

namespace melete {

constexpr int64_t kOneBatchSteps = 200;  // unless someone says how many

// The same batch, whichever is asked for.
class OneBatch : public BatchSource {
 public:
  explicit OneBatch(Batch batch) : batch_(std::move(batch)) {}
  Batch batch(int64_t number) override {
    Batch same = batch_;
    same.number = number;
    return same;
  }
  int64_t items() const { return batch_.items(); }

 private:
  Batch batch_;
};

struct OneBatchResult {
  std::string figure;            // the task's main figure
  double before = 0, after = 0;  // of it, on that batch
  std::optional<double> chance;
  enum { learned, little, nothing } verdict = nothing;
  std::string words;
};

// Trains `task` on the first batch of `source` for config.steps with a rate that does not fall; writes
// nothing. Warm-ups end after a tenth of the steps. Stops early, with what it has, when `stop` is set.
OneBatchResult overfit_one_batch(Task& task, BatchSource& source, TrainerConfig config, Reporter& reporter,
                                 const std::atomic<bool>& stop);

}  // namespace melete
