// What all instruction sets round with.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ROUNDING_CONSTANTS_H_
#define SHARDSHIFT_KERNELS_ROUNDING_CONSTANTS_H_

#include <cstdint>

namespace shardshift::kernels {

// Bits of a float's mantissa that the formats do not have.
inline constexpr int kBf16DroppedBits = 16;
inline constexpr int kFp16DroppedBits = 13;

inline constexpr float kFp16SmallestNormal = 0x1p-14F;
inline constexpr float kFp16Largest = 65504.0F;
// A float's last bit is worth a denormal of fp16's in [0.5, 1): the sum with
// it is rounded like one.
inline constexpr float kFp16DenormalMagic = 0.5F;

inline constexpr uint32_t kNanBits = 0x7FC00000;

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ROUNDING_CONSTANTS_H_
