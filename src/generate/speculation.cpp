#include "generate/speculation.h"

#include "core/base/error.h"
#include "core/device.h"
#include "nn/draws.h"

namespace melete {

namespace {

// The number of true values before the first false one in each row.
at::Tensor leading(const at::Tensor& holds) {
  return holds.to(at::kLong).cumprod(1).sum(1);
}

// One token of each row: probabilities [rows, classes] and a uniform draw [rows, 1] -> int64 [rows]
at::Tensor draw_one(const at::Tensor& probabilities, const at::Tensor& uniform) {
  const at::Tensor sums = probabilities.to(at::kDouble).cumsum(1);
  const at::Tensor total = sums.narrow(1, sums.size(1) - 1, 1);
  // The first class whose sum is above the draw; never one of probability 0.
  const at::Tensor chosen = sums.le(uniform.to(at::kDouble) * total).sum(1);
  const at::Tensor last = probabilities.gt(0).to(at::kLong).cumsum(1).argmax(1);  // rounding ends here
  return at::minimum(chosen, last);
}

at::Tensor at_place(const at::Tensor& values, const at::Tensor& place) {
  const at::Tensor index = place.view({-1, 1, 1}).expand({-1, 1, values.size(2)});
  return values.gather(1, index).squeeze(1);
}

}  // namespace

DraftVerdict judge_samples(const at::Tensor& real, const at::Tensor& quick, const at::Tensor& drafts,
                           Draws& draws, double lenience) {
  const int64_t rows = drafts.size(0), n = drafts.size(1);
  require(real.size(1) == n + 1 && quick.size(1) == n,
          "[speculation] {} drafts need {} real and {} quick distributions, got {} and {}", n, n + 1, n,
          real.size(1), quick.size(1));
  const at::Tensor index = drafts.unsqueeze(2);
  const at::Tensor p = real.narrow(1, 0, n).gather(2, index).squeeze(2);
  const at::Tensor q = quick.gather(2, index).squeeze(2) * lenience;
  const at::Tensor uniform = sent_to(p.device(), draws.uniform("accept", {rows, n}));
  DraftVerdict verdict;
  verdict.accepted = leading((uniform * q).lt(p));
  // A refused draft is replaced from what the quick model underrated.
  const at::Tensor place = verdict.accepted.clamp_max(n - 1);
  const at::Tensor here = at_place(real, place);
  at::Tensor rest = (here - at_place(quick, place)).clamp_min(0);
  rest = at::where(rest.sum(1, true).gt(0), rest, here);  // both agree but for rounding
  const at::Tensor all_stand = verdict.accepted.eq(n).unsqueeze(1);
  verdict.next = draw_one(at::where(all_stand, real.select(1, n), rest),
                          sent_to(p.device(), draws.uniform("replace", {rows, 1})));
  return verdict;
}

DraftVerdict judge_greedy(const at::Tensor& logits, const at::Tensor& drafts) {
  const int64_t n = drafts.size(1);
  require(logits.size(1) == n + 1, "[speculation] {} drafts need {} distributions, got {}", n, n + 1,
          logits.size(1));
  const at::Tensor likeliest = logits.argmax(-1);  // [rows, n + 1]
  DraftVerdict verdict;
  verdict.accepted = leading(likeliest.narrow(1, 0, n).eq(drafts));
  verdict.next = likeliest.gather(1, verdict.accepted.unsqueeze(1)).squeeze(1);
  return verdict;
}

}  // namespace melete
