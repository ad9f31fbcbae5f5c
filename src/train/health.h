// Watches for losses and gradients that are not finite. Their steps are skipped and counted; too many in a
// row and the run goes back to its last good checkpoint; too often back and it stops.
#pragma once

#include <cstdint>
#include <string>

#include "io/tensors.h"
#include "train/trainer_config.h"

namespace melete {

enum class Verdict { good, skipped, roll_back, give_up };

class Health {
 public:
  explicit Health(const HealthConfig& config) : config_(config) {}

  Verdict judge(bool finite, const std::string& reason);  // once a step
  void rolled_back();

  bool in_bad_streak() const { return bad_in_a_row_ > 0; }
  int64_t bad_in_a_row() const { return bad_in_a_row_; }
  int64_t bad_total() const { return bad_total_; }
  int64_t rollbacks() const { return rollbacks_; }
  const std::string& last_reason() const { return last_reason_; }

  void state(TensorMap& tensors, const std::string& prefix) const;
  void load(const TensorMap& tensors, const std::string& prefix);

 private:
  HealthConfig config_;
  int64_t bad_in_a_row_ = 0, bad_total_ = 0, rollbacks_ = 0;
  std::string last_reason_;
};

}  // namespace melete
