// Sixteen float lanes as two AVX registers. Included by lanes.h alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_CPU_LANES_AVX2_H_
#define SHARDSHIFT_KERNELS_CPU_LANES_AVX2_H_

#include <immintrin.h>

#include <cstdint>

namespace shardshift::kernels::avx2 {

struct F16 {
  __m256 low, high;
};
struct I16 {
  __m256i low, high;
};
// All bits of a lane, or none.
struct Mask {
  __m256i low, high;
};

inline F16 Broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

// The mask of lanes [0,count). REQUIRES: 0 <= count <= 16.
inline Mask FirstLanes(int64_t count) {
  const __m256i n = _mm256_set1_epi32(static_cast<int32_t>(count));
  return {
      _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
      _mm256_cmpgt_epi32(n, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

// Memory accesses touch exactly the `count` elements; other lanes load +0.
inline F16 Load(const float* p, int64_t count = 16) {
  if (count == 16) return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  const Mask mask = FirstLanes(count);
  return {_mm256_maskload_ps(p, mask.low),
          _mm256_maskload_ps(p + 8, mask.high)};
}
inline void Store(F16 x, float* p, int64_t count = 16) {
  if (count == 16) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
    return;
  }
  const Mask mask = FirstLanes(count);
  _mm256_maskstore_ps(p, mask.low, x.low);
  _mm256_maskstore_ps(p + 8, mask.high, x.high);
}

inline F16 operator+(F16 a, F16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline F16 operator-(F16 a, F16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline F16 operator*(F16 a, F16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline F16 operator/(F16 a, F16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline F16 operator-(F16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}
// a b + c and -(a b) + c with one rounding.
inline F16 Fma(F16 a, F16 b, F16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low),
          _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F16 NegFma(F16 a, F16 b, F16 c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low),
          _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
inline F16 Sqrt(F16 a) {
  return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)};
}
// a > b ? a : b and a < b ? a : b: a NaN in b stays.
inline F16 Max(F16 a, F16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline F16 Min(F16 a, F16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline F16 Select(Mask mask, F16 yes, F16 no) {
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_castsi256_ps(mask.low)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_castsi256_ps(mask.high))};
}

// Lanes whose sign bit is set.
inline Mask NegativeLanes(F16 a) {
  return {_mm256_srai_epi32(_mm256_castps_si256(a.low), 31),
          _mm256_srai_epi32(_mm256_castps_si256(a.high), 31)};
}

inline I16 BitsOf(F16 a) {
  return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}
inline F16 FromBits(I16 a) {
  return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
inline I16 BroadcastInt(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline I16 operator+(I16 a, I16 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline I16 operator-(I16 a, I16 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
inline I16 operator&(I16 a, I16 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
template <int kBits>
inline I16 ShiftLeft(I16 a) {
  return {_mm256_slli_epi32(a.low, kBits), _mm256_slli_epi32(a.high, kBits)};
}
// Arithmetic.
template <int kBits>
inline I16 ShiftRight(I16 a) {
  return {_mm256_srai_epi32(a.low, kBits), _mm256_srai_epi32(a.high, kBits)};
}

inline __m256 LowHalf(F16 x) { return x.low; }
inline __m256 HighHalf(F16 x) { return x.high; }

}  // namespace shardshift::kernels::avx2

#endif  // SHARDSHIFT_KERNELS_CPU_LANES_AVX2_H_
