// What a transformer does for one position between its matrix products, without tensors: the parts of a
// generation's step. float32 on the CPU.
#pragma once

#include <cstdint>

namespace melete {

// Layer normalisation of x [n] with a gain [n] and, where not null, a shift [n]; y may be x.
void norm_row(const float* x, const float* gain, const float* shift, float* y, int64_t n);

// All heads of one query over the keys and values of a cache; query head h reads key head h % kv_heads.
struct PositionAttention {
  const float* query = nullptr;                              // [heads, dim]
  const float *first_key = nullptr, *first_value = nullptr;  // [kv_heads, dim], of the first position;
  int64_t step = 0;                                          // of both, from position to position
  int64_t keys = 0, heads = 0, kv_heads = 1, dim = 0;
  float scale = 1;
  const float* bias = nullptr;      // for keys from bias_from on; null: none
  int64_t bias_from = 0;            //
  int64_t bias_step = 0;            // from head to head; 0: the same for all
  const uint8_t* hidden = nullptr;  // [keys], not 0: not looked at; null: all are
};
// scores [heads, keys] is room to work in; result [heads, dim]
void attend_position(const PositionAttention& attention, float* scores, float* result);

}  // namespace melete
