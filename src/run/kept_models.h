// Models that stay in memory between the jobs of one process, so that a second job of a kind begins at once.
// The functions that load models ask here. Unless keep_models() was called, each question makes its model
// anew, which is what a command that does one thing and ends wants.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <string>
#include <typeinfo>
#include <vector>

namespace melete {

struct KeptLimits {
  int64_t models = 0;  // 0: none is kept
  int64_t bytes = 0;   // of all of them; 0: no limit
};
void keep_models(const KeptLimits& limits);

// A job is over: those that were not used for the longest time go until the limits hold. One of a kind is
// kept, or as many as one job took: a new one takes the place of those that its job does not use.
void end_job_of_kept_models();

struct KeptModel {
  std::string kind, path;
  int64_t bytes = 0;  // of its tensors; of its file, where they are on another device
};
std::vector<KeptModel> kept_models();  // the one that was used last comes first

namespace kept_detail {
std::any kept_or_made(const std::string& kind, const std::string& path, const std::string& how,
                      const std::function<std::any()>& make);
}

// kind: what it is, for people too ("codec"). path: the run or file that it comes from; when that changes, it
// is made anew. how: whatever else makes it what it is (weights, device). Model: something whose copies share
// their tensors, such as a module's holder or a shared pointer; nobody changes it once it is made.
template <class Model, class Make>
Model kept_model(const std::string& kind, const std::string& path, const std::string& how, Make make) {
  return std::any_cast<Model>(kept_detail::kept_or_made(kind, path, how + typeid(Model).name(),
                                                        [&]() -> std::any { return Model(make()); }));
}

}  // namespace melete
