#include "systems/voicebox/sampling_together.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "generate/runge_kutta.h"
#include "nn/draws.h"
#include "systems/voicebox/masks.h"

namespace melete::voicebox {

std::vector<std::vector<int64_t>> batches_of_like_length(const std::vector<int64_t>& lengths, int64_t size) {
  require(size >= 1, "[batch] expected a size of at least 1, got {}", size);
  const auto count = static_cast<int64_t>(lengths.size());
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] < lengths[static_cast<size_t>(b)];
  });
  std::vector<std::vector<int64_t>> batches;
  for (int64_t begin = 0; begin < count; begin += size) {
    batches.emplace_back(order.begin() + begin, order.begin() + std::min(begin + size, count));
    std::sort(batches.back().begin(), batches.back().end());
  }
  std::sort(batches.begin(), batches.end());
  return batches;
}

Condition joined_rows(const std::vector<Condition>& rows) {
  require(!rows.empty(), "[voicebox] expected a condition or more, got none");
  int64_t longest = 0;
  for (const Condition& row : rows) longest = std::max(longest, row.context.size(1));
  std::vector<at::Tensor> context, hidden, tokens;
  std::vector<int64_t> lengths;
  for (const Condition& row : rows) {
    const int64_t frames = row.context.size(1);
    require(
        row.context.size(0) == 1 && row.hidden.defined() && row.tokens.defined() &&
            row.tokens.size(1) == frames && !row.valid.defined() && !row.dropped.defined(),
        "[voicebox] expected conditions of one row with a mask and a token for each of its {} frames, got "
        "{} rows, {} tokens",
        frames, row.context.size(0), row.tokens.defined() ? row.tokens.size(1) : 0);
    context.push_back(with_length(row.context, longest));
    hidden.push_back(at::constant_pad_nd(row.hidden, {0, longest - frames}, 1));
    tokens.push_back(at::constant_pad_nd(row.tokens, {0, longest - frames}, -1));
    lengths.push_back(frames);
  }
  Condition all;
  all.context = at::cat(context);
  all.hidden = at::cat(hidden);
  all.tokens = at::cat(tokens);
  const bool padded = *std::min_element(lengths.begin(), lengths.end()) < longest;
  if (padded) all.valid = first_frames(at::tensor(lengths, at::kLong), longest).to(all.hidden.device());
  return all;
}

SampledRows sample_together(Voicebox& model, const std::vector<Condition>& rows, const FlowSampling& how,
                            const std::function<std::unique_ptr<Draws>(size_t)>& draws_of) {
  require(rows.size() == 1 || !runge_kutta(how.solver.method).adaptive(),
          "[voicebox] {} chooses its steps by all frames of a batch, padding among them: expected one row, "
          "got {}; "
          "try euler, midpoint or rk4",
          how.solver.method, rows.size());
  const Condition all = joined_rows(rows);
  std::vector<at::Tensor> noise;
  for (size_t i = 0; i < rows.size(); ++i)  // drawn at its own length: a longer draw need not begin the same
    noise.push_back(with_length(draws_of(i)->normal("noise", rows[i].context.sizes()), all.context.size(1)));
  const Sampled made = sample(model, all, how, at::cat(noise));
  SampledRows result;
  result.work = made.solution;
  for (size_t i = 0; i < rows.size(); ++i)
    result.frames.push_back(
        made.frames.narrow(0, static_cast<int64_t>(i), 1).narrow(1, 0, rows[i].context.size(1)));
  return result;
}

}  // namespace melete::voicebox
