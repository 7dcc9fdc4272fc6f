// SPDX-License-Identifier: Apache-2.0
#include "kernels/rounding.h"

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/ref/ref.h"
#include "kernels/rounding_constants.h"

namespace shardshift::kernels::ref {
namespace {

// To nearest even without the last kBits bits of the mantissa. A carry out of
// the mantissa is the next exponent, as it should be.
template <int kBits>
float DropBits(float magnitude) {
  auto bits = std::bit_cast<uint32_t>(magnitude);
  bits += (1U << (kBits - 1)) - 1 + ((bits >> kBits) & 1U);
  return std::bit_cast<float>(bits & ~((1U << kBits) - 1));
}

float ToBf16(float magnitude) { return DropBits<kBf16DroppedBits>(magnitude); }

float ToFp16(float magnitude) {
  if (magnitude < kFp16SmallestNormal) {
    return (magnitude + kFp16DenormalMagic) - kFp16DenormalMagic;
  }
  const float rounded = DropBits<kFp16DroppedBits>(magnitude);
  return rounded > kFp16Largest ? std::numeric_limits<float>::infinity()
                                : rounded;
}

template <float (*kRound)(float)>
void Round(const RoundArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const float x = args.x[i];
    args.x[i] = std::isnan(x) ? std::bit_cast<float>(kNanBits)
                              : std::copysign(kRound(std::fabs(x)), x);
  }
}

}  // namespace

void InstallRounding(Kernels& table) {
  table.round_to_bf16 = Round<ToBf16>;
  table.round_to_fp16 = Round<ToFp16>;
}

}  // namespace shardshift::kernels::ref
