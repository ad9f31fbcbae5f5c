#include "kernels/minimal_filter_kernels.h"

#include "kernels/minimal_filter_transforms.h"
#include "kernels/vectors.h"

namespace melete::minimal_filter {

namespace {

template <int Width, class Transform>
MELETE_INLINE void transform_lines(const float* const* in, int64_t in_offset, float* const* out,
                                   int64_t out_offset, int64_t lines, int64_t count, const float* bias) {
  using V = typename Lanes<Width>::Vector;
  for (int64_t line = 0; line < lines; ++line, in += Transform::in, out += Transform::out)
    for (int64_t at = 0; at < count; at += Width) {
      V x[Transform::in], y[Transform::out];
#pragma GCC unroll 8
      for (int i = 0; i < Transform::in; ++i) load<Width>(x[i], in[i] + in_offset + at);
      Transform::apply(x, y);
      if (bias) {
        V same;
        load<Width>(same, bias + at);
#pragma GCC unroll 8
        for (int i = 0; i < Transform::out; ++i) y[i] += same;
      }
#pragma GCC unroll 8
      for (int i = 0; i < Transform::out; ++i) store<Width>(y[i], out[i] + out_offset + at);
    }
}

#define MELETE_PASSES(suffix, attribute, width)                                                       \
  struct Set_##suffix {                                                                               \
    template <class Transform>                                                                        \
    attribute static void pass(const float* const* in, int64_t in_offset, float* const* out,          \
                               int64_t out_offset, int64_t lines, int64_t count, const float* bias) { \
      transform_lines<width, Transform>(in, in_offset, out, out_offset, lines, count, bias);          \
    }                                                                                                 \
  };

MELETE_PASSES(plain, , 4)
#if defined(__x86_64__)
MELETE_PASSES(v3, __attribute__((target("arch=x86-64-v3"))), 8)
MELETE_PASSES(v4, __attribute__((target("arch=x86-64-v4"))), 16)
#endif

// The transform T<points, n> for numbers known only at run time.
template <class Set, template <int, int> class T>
Pass pass_for(int points, int n) {
  switch (points * 10 + n) {
    case 32:
      return Set::template pass<T<3, 2>>;
    case 42:
      return Set::template pass<T<4, 2>>;
    case 43:
      return Set::template pass<T<4, 3>>;
    case 52:
      return Set::template pass<T<5, 2>>;
    case 53:
      return Set::template pass<T<5, 3>>;
    case 54:
      return Set::template pass<T<5, 4>>;
    case 62:
      return Set::template pass<T<6, 2>>;
    case 63:
      return Set::template pass<T<6, 3>>;
    case 64:
      return Set::template pass<T<6, 4>>;
    case 65:
      return Set::template pass<T<6, 5>>;
  }
  return nullptr;
}

template <class Set>
Pass input_pass(int points) {
  switch (points) {
    case 3:
      return Set::template pass<Input<3>>;
    case 4:
      return Set::template pass<Input<4>>;
    case 5:
      return Set::template pass<Input<5>>;
    case 6:
      return Set::template pass<Input<6>>;
  }
  return nullptr;
}

template <class Set>
constexpr Kernels kernels_of() {
  return {pass_for<Set, Filter>, pass_for<Set, FilterGradient>, input_pass<Set>, pass_for<Set, Output>,
          pass_for<Set, OutputGradient>};
}

}  // namespace

const Kernels& kernels() {
  return best_of<Kernels>(kernels_of<Set_plain>()
#if defined(__x86_64__)
                              ,
                          kernels_of<Set_v3>(), kernels_of<Set_v4>()
#endif
  );
}

}  // namespace melete::minimal_filter
