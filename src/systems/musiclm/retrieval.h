// How well one side of a joint space finds the other.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace melete::musiclm {

struct RetrievalFigures {
  std::vector<double> recall;  // for each k asked for: share of queries whose partner is among the best k
  double median_rank = 0;      // of the partner, from 1
  double mean_rank = 0;
};

// queries and candidates [n, dim] unit vectors; query i belongs to candidate i, and where `groups` [n] int64
// is given, to every candidate of its group. Candidates that are as near as the partner share its place, so
// that a collapsed space is at chance.
RetrievalFigures retrieval(const at::Tensor& queries, const at::Tensor& candidates,
                           const std::vector<int64_t>& ks, const at::Tensor& groups = {});
// The same figures of guessing, without groups.
RetrievalFigures retrieval_by_chance(int64_t n, const std::vector<int64_t>& ks);

// Mean product of vectors of different rows: near 0 where they spread, 1 where they have collapsed.
double crowding(const at::Tensor& vectors);

}  // namespace melete::musiclm
