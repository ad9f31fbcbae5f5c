// What a transformer does for one position between its matrix products, without tensors: the parts of a
// generation's step. float32 on the CPU.
#pragma once

#include <cstdint>

namespace melete {

// Layer normalisation of x [n] with a gain [n] and, where not null, a shift [n]; y may be x.
void norm_row(const float* x, const float* gain, const float* shift, float* y, int64_t n);

// All heads of one query over the keys and values of a cache; query head h reads key head h % kv_heads.
struct PositionAttention {
  const float* query = nullptr;                              // [queries, heads, dim]
  int64_t queries = 1;                                       // that look at the same keys
  const float *first_key = nullptr, *first_value = nullptr;  // [kv_heads, dim], of the first position;
  int64_t step = 0;                                          // of both, from position to position
  const int32_t* rows = nullptr;  // [keys], where position i lies rows[i] * row_step further; null: none does
  int64_t row_step = 0;
  int64_t keys = 0, heads = 0, kv_heads = 1, dim = 0;
  float scale = 1;
  const float* bias = nullptr;      // for keys from bias_from on; null: none
  int64_t bias_from = 0;            //
  int64_t bias_step = 0;            // from head to head; 0: the same for all
  const uint8_t* hidden = nullptr;  // [keys], not 0: not looked at; null: all are
};
// scores [queries, heads, keys] is room to work in; result [queries, heads, dim]
void attend_position(const PositionAttention& attention, float* scores, float* result);

}  // namespace melete
