#include "train/health.h"

#include "core/base/error.h"

namespace melete {

Verdict Health::judge(bool finite, const std::string& reason) {
  if (finite) {
    bad_in_a_row_ = 0;
    return Verdict::good;
  }
  ++bad_in_a_row_;
  ++bad_total_;
  last_reason_ = reason;
  if (bad_in_a_row_ <= config_.max_bad_steps) return Verdict::skipped;
  return rollbacks_ < config_.max_rollbacks ? Verdict::roll_back : Verdict::give_up;
}

void Health::rolled_back() {
  ++rollbacks_;
  bad_in_a_row_ = 0;
}

void Health::state(TensorMap& tensors, const std::string& prefix) const {
  tensors[prefix + "bad_in_a_row"] = at::scalar_tensor(bad_in_a_row_, at::kLong);
  tensors[prefix + "bad_total"] = at::scalar_tensor(bad_total_, at::kLong);
  tensors[prefix + "rollbacks"] = at::scalar_tensor(rollbacks_, at::kLong);
}

void Health::load(const TensorMap& tensors, const std::string& prefix) {
  const auto read = [&](const char* name) {
    const auto found = tensors.find(prefix + name);
    require(found != tensors.end(), "[health] the checkpoint lacks {}{}", prefix, name);
    return found->second.item<int64_t>();
  };
  bad_in_a_row_ = read("bad_in_a_row");
  bad_total_ = read("bad_total");
  rollbacks_ = read("rollbacks");
}

}  // namespace melete
