// What the reference cases of Muse share.
#pragma once

#include <map>
#include <string>

#include "golden.h"
#include "pretrained/vgg16.h"
#include "systems/muse/foreign_names.h"
#include "systems/muse/task_vqgan.h"

namespace melete::golden {

// Replays recorded draws by what they are for.
class MuseDraws : public Draws {
 public:
  // Several values under one name are handed out in turn.
  void add(const std::string& what, const at::Tensor& values) { values_[what].push_back(values); }
  void add_rows(const at::Tensor& rows) { rows_.push_back(rows); }

  int64_t integer(std::string_view what, int64_t low, int64_t high) override;  // from a value in [0, 1)
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override;
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override;
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override;

 private:
  std::map<std::string, std::deque<at::Tensor>> values_;
  std::deque<at::Tensor> rows_;
};

// The draws of an autoencoder's quantizer and of VGG's dropout, whatever of them was recorded. `step`: of a
// trainer, whose generator passes have two masks each.
MuseDraws vqgan_draws(const Case& c);

Vgg16 vgg_of(const Case& c);  // empty where the case has none

using muse_maskgit_pytorch::NamedPair;
// Whether this is the bias of a convolution before a normalisation with one channel a group. It changes
// nothing, so its gradient is zero, and what is recorded of it is rounding.
bool changes_nothing(const NamedPair& pair, const muse::VqganConfig& config);

// Compares the gradients that the case has; a gradient that is zero everywhere may be missing here. One that
// is zero by mathematics must be small beside that of its layer's weight, here and in the case.
void check_gradients(const Case& c, Checker& check, const std::vector<NamedPair>& pairs,
                     const muse::VqganConfig& config = {});
// Compares tensors of the module with `<prefix><their name>`.
void check_state(const Case& c, Checker& check, const std::vector<NamedPair>& pairs,
                 const std::string& prefix);

// The value of an argument that a case keeps among its inputs or in its configuration.
double argument(const Case& c, const std::string& name, double otherwise);

}  // namespace melete::golden
