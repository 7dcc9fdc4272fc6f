// The constants of the float exponential, shared by ref/ and cpu/.
// Source of reduction and polynomial: Cephes expf (Moshier).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_EXP_CONSTANTS_H_
#define SHARDSHIFT_KERNELS_EXP_CONSTANTS_H_

#include <cstdint>

namespace shardshift::kernels::exp_constants {

// Beyond these e^x is +inf or +0 already.
inline constexpr float kMax = 89.0F;
inline constexpr float kMin = -104.0F;

inline constexpr float kLog2E = 1.44269504088896341F;
// ln2 = kLn2High + kLn2Low; the high part has 10 bits, so n kLn2High is exact.
inline constexpr float kLn2High = 0.693359375F;
inline constexpr float kLn2Low = -2.12194440e-4F;

// Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
inline constexpr float kRoundShift = 12582912.0F;
inline constexpr int32_t kRoundShiftBits = 0x4B400000;

// e^r = 1 + r (1 + r (kC2 + r (kC3 + ..))) for |r| <= ln2/2.
inline constexpr float kC2 = 5.0000001201e-1F;
inline constexpr float kC3 = 1.6666665459e-1F;
inline constexpr float kC4 = 4.1665795894e-2F;
inline constexpr float kC5 = 8.3334519073e-3F;
inline constexpr float kC6 = 1.3981999507e-3F;
inline constexpr float kC7 = 1.9875691500e-4F;

}  // namespace shardshift::kernels::exp_constants

#endif  // SHARDSHIFT_KERNELS_EXP_CONSTANTS_H_
