#include "nn/lookup_free.h"

namespace melete {

namespace {

at::Tensor entropy(const at::Tensor& probability) {
  return -(probability * at::log(at::clamp_min(probability, 1e-5))).sum(-1);
}

// p [rows, books, bits], the probability of a one -> of every number that these bits make, the first bit
// being the most significant. [rows, books, 2^bits]
at::Tensor probability_of_numbers(const at::Tensor& p) {
  const at::Tensor both = at::stack({1 - p, p}, -1);  // [rows, books, bits, 2]
  at::Tensor table = both.select(2, 0);
  for (int64_t bit = 1; bit < p.size(2); ++bit)
    table = (table.unsqueeze(-1) * both.select(2, bit).unsqueeze(2)).flatten(2);
  return table;
}

}  // namespace

LookupFreeEntropy dense_entropy(const at::Tensor& x, const at::Tensor& codebook, double sharpness) {
  const at::Tensor rows = x.reshape({-1, x.size(2)});
  const at::Tensor probability = at::softmax(2 * sharpness * at::mm(rows, codebook.t()), -1);
  if (x.size(1) == 1) return {entropy(probability).mean(), entropy(probability.mean(0))};
  const at::Tensor use = probability.view({x.size(0), x.size(1), -1}).mean(0);  // [codebooks, codes]
  return {entropy(probability).mean(), entropy(use).mean()};
}

LookupFreeEntropy factorised_entropy(const at::Tensor& x, double sharpness, double scale) {
  // Softmax over +-scale in one channel: 2 * sharpness * x * (scale - -scale) between its two codes.
  const at::Tensor logits = 4 * sharpness * scale * x;
  const at::Tensor p = at::sigmoid(logits);
  const at::Tensor of_bits = at::softplus(logits) - logits * p;

  const int64_t bits = x.size(2), high = bits / 2;
  at::Tensor use;  // [codebooks, 2^bits]
  if (high == 0) {
    use = probability_of_numbers(p).mean(0);
  } else {
    const at::Tensor first = probability_of_numbers(p.narrow(2, 0, high)).permute({1, 2, 0});
    const at::Tensor second = probability_of_numbers(p.narrow(2, high, bits - high)).transpose(0, 1);
    use = at::bmm(first, second).flatten(1) / static_cast<double>(x.size(0));
  }
  return {of_bits.sum(-1).mean(), entropy(use).mean()};
}

}  // namespace melete
