// The processes that train one model together. A group is always there, of size 1 when alone, so that the
// code for one process and for many is the same. Built on LibTorch's c10d: Gloo between CPUs, NCCL between
// GPUs. Every function with "all ranks" in its comment must be called by all of them, in the same order.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dist/base/environment.h"
#include "dist/dist_config.h"

namespace melete {

class GradientReducer;

class Group {
 public:
  Group();  // alone
  // Meets the other ranks. An Error says who is missing, or why they cannot be reached.
  Group(const Place& place, const DistConfig& config);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const Place& place() const { return place_; }
  int64_t rank() const { return place_.rank; }
  int64_t size() const { return place_.size; }
  bool alone() const { return place_.size == 1; }
  bool main() const { return place_.rank == 0; }

  // What this rank is about to do, for the messages of ranks that wait: "forward", "reduce", "save".
  void enter(const std::string& stage, int64_t step = 0);

  // All ranks; in place, the same bits on every rank afterwards. Floats or integers of equal shape.
  void sum(at::Tensor& tensor);
  void mean(at::Tensor& tensor);
  bool any(bool value);                         // all ranks
  at::Tensor gather(const at::Tensor& tensor);  // all ranks: [size, ...], rank by rank
  void barrier();                               // all ranks
  // All ranks: the main one does `work` while the others wait, however long it takes, for as long as it shows
  // signs of life. What it throws ends the waiting, too, and is thrown on.
  void on_main(const std::string& stage, int64_t step, const std::function<void()>& work);

  // All ranks; what the main rank gives is what every rank has.
  std::string from_main(const std::string& text);
  void from_main(std::map<std::string, at::Tensor>& tensors);   // CPU tensors; others' content is replaced
  void copy_from_main(const std::vector<at::Tensor>& tensors);  // in place, shapes agree already

  // An Error that names the ranks whose texts differ from the main rank's. All ranks.
  void require_same(const std::string& what, const std::string& text);

  // Before a rank ends: with an error that the others shall hear of, or well (all ranks; waits for all).
  void say_failure(const std::string& reason);
  void finish();

  // True once a collective has failed: what c10d still has under way would keep this process from ending, so
  // main() leaves without it.
  static bool some_group_failed();

 private:
  friend class GradientReducer;
  struct Impl;
  void guarded(const std::function<void()>& run);
  [[noreturn]] void explain(const std::exception& error);

  Place place_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace melete
