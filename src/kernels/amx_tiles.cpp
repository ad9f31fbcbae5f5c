#include "kernels/amx_tiles.h"

#include <algorithm>

#include "kernels/bf16_tiles.h"

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace melete {

#if defined(__x86_64__) && defined(__linux__)

namespace {

#define MELETE_AMX_CODE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")))

constexpr int64_t kSide = 16;  // rows and words of a block: what the processor calls a tile

static_assert(kAmxRows == 2 * kSide && kBf16Columns == 2 * kSide && kBf16Lanes == kSide);
static_assert(kAmxRows <= kBf16MostRows);

constexpr int64_t bytes(int64_t words) {
  return 4 * words;
}

// What the processor reads: the shape of its eight registers, all whole blocks. g++ thinks that only the
// first bytes are read, and would drop what is written to the others: a constant in memory.
struct alignas(64) Shapes {
  constexpr Shapes() {
    for (int i = 0; i < 8; ++i) bytes_a_row[i] = bytes(kSide), rows[i] = kSide;
  }
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_a_row[16] = {};
  uint8_t rows[16] = {};
};
constexpr Shapes kShapes;

// Registers: sums 0 to 3 (upper left, upper right, lower left, lower right), a 4 and 5, b 6 and 7.
// kLower: whether there are rows for the lower half.
template <bool kLower>
MELETE_AMX_CODE void whole_tile(const uint32_t* a, int64_t a_step, const uint32_t* b, int64_t words,
                                const float* start, int64_t start_step, float* c, int64_t c_step) {
  asm volatile("" ::: "memory");  // g++ does not know that the loads below read memory
  if (start) {
    _tile_loadd(0, start, bytes(start_step));
    _tile_loadd(1, start + kSide, bytes(start_step));
    if constexpr (kLower) {
      _tile_loadd(2, start + kSide * start_step, bytes(start_step));
      _tile_loadd(3, start + kSide * start_step + kSide, bytes(start_step));
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kLower) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  for (int64_t w = 0; w < words; w += kSide, b += kSide * kBf16Columns) {
    _tile_loadd(6, b, bytes(kBf16Columns));
    _tile_loadd(4, a + w, bytes(a_step));
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kSide, bytes(kBf16Columns));
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kLower) {
      _tile_loadd(5, a + kSide * a_step + w, bytes(a_step));
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, bytes(c_step));
  _tile_stored(1, c + kSide, bytes(c_step));
  if constexpr (kLower) {
    _tile_stored(2, c + kSide * c_step, bytes(c_step));
    _tile_stored(3, c + kSide * c_step + kSide, bytes(c_step));
  }
}

bool permitted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool has_amx() {
  static const bool there =
      __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") && permitted();
  return there;
}

MELETE_AMX_CODE void amx_begin() {
  _tile_loadconfig(&kShapes);
}

// Registers that are not empty cost every switch to another thread 8 kB.
MELETE_AMX_CODE void amx_end() {
  _tile_release();
}

MELETE_AMX_CODE void amx_tile(const uint32_t* a, int64_t a_step, const uint32_t* b, int64_t words,
                              const float* start, int64_t start_step, float* c, int64_t c_step, int64_t rows,
                              int64_t columns) {
  const auto multiply = rows > kSide ? whole_tile<true> : whole_tile<false>;
  words = (words + kSide - 1) / kSide * kSide;
  if ((rows == kSide || rows == kAmxRows) && columns >= kBf16Columns)
    return multiply(a, a_step, b, words, start, start_step, c, c_step);
  // At the edges of c a whole tile goes through memory of its own.
  alignas(64) float room[kAmxRows * kBf16Columns] = {};
  columns = std::min(columns, kBf16Columns);
  if (start)
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(start + row * start_step, columns, room + row * kBf16Columns);
  multiply(a, a_step, b, words, start ? room : nullptr, kBf16Columns, room, kBf16Columns);
  for (int64_t row = 0; row < rows; ++row) std::copy_n(room + row * kBf16Columns, columns, c + row * c_step);
}

#else

bool has_amx() {
  return false;
}

void amx_begin() {}
void amx_end() {}
void amx_tile(const uint32_t*, int64_t, const uint32_t*, int64_t, const float*, int64_t, float*, int64_t,
              int64_t, int64_t) {}

#endif

}  // namespace melete
