// Sixteen float lanes, the vector of every kernel in cpu/, on the instruction
// set this file is compiled for. SS_ISA names that set's namespace.
//
// Files in cpu/ include no standard header with inline functions: the linker
// keeps one copy of such a function, and it may be the one compiled here, which
// an older processor cannot run.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_CPU_LANES_H_
#define SHARDSHIFT_KERNELS_CPU_LANES_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/parallel.h"

#ifdef __AVX512F__
#include "kernels/cpu/lanes_avx512.h"  // IWYU pragma: export
#define SS_ISA avx512
#else
#include "kernels/cpu/lanes_avx2.h"  // IWYU pragma: export
#define SS_ISA avx2
#endif

namespace shardshift::kernels::SS_ISA {

// Lanes beyond `count` become +0. REQUIRES: 0 <= count <= 16.
inline F16 KeepFirst(F16 x, int64_t count) {
  return Select(FirstLanes(count), x, Broadcast(0.0F));
}

// The lanes folded in halves, as LaneSum::Total does.
inline float FoldLanes(F16 x) {
  const __m256 eight = LowHalf(x) + HighHalf(x);
  const __m128 four =
      _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  const __m128 one = two + _mm_shuffle_ps(two, two, 1);
  return _mm_cvtss_f32(one);
}

inline float MaxLane(F16 x) {
  const __m256 eight = _mm256_max_ps(LowHalf(x), HighHalf(x));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight),
                                 _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  const __m128 one = _mm_max_ps(two, _mm_shuffle_ps(two, two, 1));
  return _mm_cvtss_f32(one);
}

// Calls body(index, count) for [0,n) in steps of 16: the last call alone may
// have count < 16, so that a tail runs the very code of the whole vectors.
template <typename Body>
inline void ForLanes(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) body(i, int64_t{16});
  if (i < n) body(i, n - i);
}

// ForLanes, shared out to threads: no sum goes from one call to the next. A
// call takes about `call_ns` nanoseconds.
template <typename Body>
inline void ParallelForLanes(int64_t n, int64_t call_ns, const Body& body) {
  ParallelRanges((n + 15) / 16, call_ns, [&](int64_t begin, int64_t end) {
    const int64_t stop = end * 16 < n ? end * 16 : n;
    ForLanes(stop - begin * 16,
             [&](int64_t i, int64_t count) { body(begin * 16 + i, count); });
  });
}

// body(row) for [0,rows), shared out to threads. A row has `cols` elements, of
// which 16 take about `lanes_ns` nanoseconds.
template <typename Body>
inline void ParallelForRows(int64_t rows, int64_t cols, int64_t lanes_ns,
                            const Body& body) {
  ParallelRanges(rows, cols * lanes_ns / 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

}  // namespace shardshift::kernels::SS_ISA

#endif  // SHARDSHIFT_KERNELS_CPU_LANES_H_
