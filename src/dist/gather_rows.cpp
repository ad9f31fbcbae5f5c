#include "dist/gather_rows.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "dist/group.h"

namespace melete {

namespace {

struct RowsOfRanks {
  Group* group = nullptr;
  std::vector<int64_t> counts;  // rows of each rank

  int64_t first_row() const {
    int64_t first = 0;
    for (int64_t rank = 0; rank < group->rank(); ++rank) first += counts[static_cast<size_t>(rank)];
    return first;
  }
};

struct GatherRows : torch::autograd::Function<GatherRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& own,
                            const RowsOfRanks& rows) {
    context->saved_data["group"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(rows.group));
    context->saved_data["first"] = rows.first_row();
    context->saved_data["count"] = own.size(0);
    // Collectives need equal shapes.
    const int64_t widest = *std::max_element(rows.counts.begin(), rows.counts.end());
    at::Tensor padded = at::zeros({widest, own.size(1)}, own.options());
    padded.narrow(0, 0, own.size(0)).copy_(own);
    const at::Tensor gathered = rows.group->gather(padded);  // [ranks, widest, width]
    std::vector<at::Tensor> parts;
    for (size_t rank = 0; rank < rows.counts.size(); ++rank)
      parts.push_back(gathered[static_cast<int64_t>(rank)].narrow(0, 0, rows.counts[rank]));
    return at::cat(parts);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* group = reinterpret_cast<Group*>(static_cast<intptr_t>(context->saved_data["group"].toInt()));
    at::Tensor sum = gradients[0].clone(at::MemoryFormat::Contiguous);
    group->sum(sum);
    return {sum.narrow(0, context->saved_data["first"].toInt(), context->saved_data["count"].toInt()),
            at::Tensor()};
  }
};

}  // namespace

GatheredRows gather_rows(Group& group, const at::Tensor& own) {
  RowsOfRanks rows;
  rows.group = &group;
  const at::Tensor counts = group.gather(at::full({1}, own.size(0), at::kLong)).flatten().contiguous();
  rows.counts.assign(counts.data_ptr<int64_t>(), counts.data_ptr<int64_t>() + counts.numel());
  return {GatherRows::apply(own, rows), rows.first_row()};
}

}  // namespace melete
