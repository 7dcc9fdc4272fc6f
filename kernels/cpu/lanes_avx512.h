// Sixteen float lanes as one AVX-512 register. Included by lanes.h alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_CPU_LANES_AVX512_H_
#define SHARDSHIFT_KERNELS_CPU_LANES_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace shardshift::kernels::avx512 {

struct F16 {
  __m512 v;
};
struct I16 {
  __m512i v;
};
using Mask = __mmask16;

inline F16 Broadcast(float x) { return {_mm512_set1_ps(x)}; }

// The mask of lanes [0,count). REQUIRES: 0 <= count <= 16.
inline Mask FirstLanes(int64_t count) {
  return static_cast<Mask>((1U << count) - 1U);
}

// Memory accesses touch exactly the `count` elements; other lanes load +0.
inline F16 Load(const float* p, int64_t count = 16) {
  return {_mm512_maskz_loadu_ps(FirstLanes(count), p)};
}
inline void Store(F16 x, float* p, int64_t count = 16) {
  _mm512_mask_storeu_ps(p, FirstLanes(count), x.v);
}

inline F16 operator+(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F16 operator-(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F16 operator*(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F16 operator/(F16 a, F16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F16 operator-(F16 a) {
  return {_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a.v),
                                               _mm512_set1_epi32(INT32_MIN)))};
}
// a b + c and -(a b) + c with one rounding.
inline F16 Fma(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F16 NegFma(F16 a, F16 b, F16 c) {
  return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
inline F16 Sqrt(F16 a) { return {_mm512_sqrt_ps(a.v)}; }
// a > b ? a : b and a < b ? a : b: a NaN in b stays.
inline F16 Max(F16 a, F16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F16 Min(F16 a, F16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F16 Select(Mask mask, F16 yes, F16 no) {
  return {_mm512_mask_blend_ps(mask, no.v, yes.v)};
}

// Lanes whose sign bit is set.
inline Mask NegativeLanes(F16 a) {
  return _mm512_movepi32_mask(_mm512_castps_si512(a.v));
}

inline I16 BitsOf(F16 a) { return {_mm512_castps_si512(a.v)}; }
inline F16 FromBits(I16 a) { return {_mm512_castsi512_ps(a.v)}; }
inline I16 BroadcastInt(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I16 operator+(I16 a, I16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I16 operator-(I16 a, I16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline I16 operator&(I16 a, I16 b) { return {_mm512_and_si512(a.v, b.v)}; }
template <int kBits>
inline I16 ShiftLeft(I16 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
// Arithmetic.
template <int kBits>
inline I16 ShiftRight(I16 a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}

inline __m256 LowHalf(F16 x) { return _mm512_castps512_ps256(x.v); }
inline __m256 HighHalf(F16 x) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
}

}  // namespace shardshift::kernels::avx512

#endif  // SHARDSHIFT_KERNELS_CPU_LANES_AVX512_H_
