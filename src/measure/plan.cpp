#include "measure/plan.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "dist/group_member.h"
#include "train/task.h"

namespace melete {

namespace {

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

PlanSizes sizes_of(Recipe& recipe) {
  const std::string assumed = recipe.settle_on_paper();
  PlanSizes sizes = sizes_of(recipe, *recipe.make_task());
  sizes.assumed = assumed;
  return sizes;
}

PlanSizes sizes_of(const Recipe& recipe, Task& task) {
  PlanSizes sizes;
  torch::nn::Module& model = task.model();
  sizes.name = recipe.name();
  const int64_t bucket = recipe.train.dist.bucket_mb << 20;
  for (const Phase& phase : task.phases()) {
    int64_t bytes = 0;
    for (const ParameterGroup& group : phase.groups)
      for (const auto& [name, tensor] : group.parameters) {
        bytes += static_cast<int64_t>(tensor.nbytes());
        sizes.parameters += tensor.numel();
      }
    sizes.gradient_bytes += bytes;
    sizes.collectives += (bytes + bucket - 1) / bucket + 2;  // buckets, which parameters were used, values
  }
  for (const auto& module : model.modules())
    if (dynamic_cast<GroupMember*>(module.get()) != nullptr) {
      // A codebook sends its sums and counts: what two of its buffers hold.
      int64_t largest = 0, all = bytes_of(module->buffers(/*recurse=*/false));
      for (const at::Tensor& buffer : module->buffers(/*recurse=*/false))
        largest = std::max<int64_t>(largest, static_cast<int64_t>(buffer.nbytes()));
      sizes.codebook_bytes += (all - largest) * recipe.train.accumulate;
      sizes.collectives += recipe.train.accumulate;
    }
  sizes.collectives += 1;  // whether anyone wants to stop
  sizes.model_bytes = bytes_of(model.parameters()) + bytes_of(model.buffers());
  sizes.optimiser_bytes = 2 * sizes.gradient_bytes;
  if (recipe.train.ema.enabled)
    for (const auto& item : model.named_parameters())
      if (task.averaged(item.key())) sizes.average_bytes += static_cast<int64_t>(item.value().nbytes());
  sizes.checkpoint_bytes = sizes.model_bytes + sizes.optimiser_bytes + sizes.average_bytes;
  sizes.save_every = recipe.train.save_every;
  sizes.items_a_step = recipe.batch_size * recipe.train.accumulate;
  sizes.seconds_of_audio = recipe.item_seconds();
  sizes.item_bytes = recipe.item_bytes();
  return sizes;
}

std::vector<PlanRow> plan(const PlanSizes& sizes, const PlanAssumptions& assumptions) {
  std::vector<PlanRow> rows;
  for (const int64_t count : assumptions.accelerators) {
    const auto ranks = static_cast<double>(count);
    PlanRow row;
    row.accelerators = count;
    const double ring = 2 * (ranks - 1) / ranks;
    const double gradients = ring * static_cast<double>(sizes.gradient_bytes);
    const double codebooks = ring * static_cast<double>(sizes.codebook_bytes);
    row.sent_bytes = gradients + codebooks;
    const double hidden_seconds = assumptions.backward_share * assumptions.step_seconds;
    row.hidden_gbit_a_second = gradients * 8e-9 / hidden_seconds;
    // Codebooks are reduced in the forward pass, where nothing hides them.
    const double at_10 = std::max(0.0, gradients * 8e-10 - hidden_seconds) + codebooks * 8e-10;
    row.visible_at_10_gbit = at_10 / (assumptions.step_seconds + at_10);
    row.audio_a_second =
        ranks * static_cast<double>(sizes.items_a_step) * sizes.seconds_of_audio / assumptions.step_seconds;
    row.read_mb_a_second =
        ranks * static_cast<double>(sizes.items_a_step) * sizes.item_bytes / assumptions.step_seconds * 1e-6;
    // Weights, gradients, the reducer's buckets, the average, the moments.
    const auto fixed =
        static_cast<double>(sizes.model_bytes + 2 * sizes.gradient_bytes + sizes.average_bytes);
    row.memory_bytes = fixed + static_cast<double>(sizes.optimiser_bytes);
    row.sharded_memory_bytes = fixed + static_cast<double>(sizes.optimiser_bytes) / ranks;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace melete
