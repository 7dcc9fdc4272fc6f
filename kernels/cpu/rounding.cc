// SPDX-License-Identifier: Apache-2.0
#include "kernels/rounding.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/rounding_constants.h"

namespace shardshift::kernels::SS_ISA {
namespace {

constexpr int32_t kInfinityBits = 0x7F800000;

template <int kBits>
F16 DropBits(F16 magnitude) {
  const I16 bits = BitsOf(magnitude);
  const I16 odd = ShiftRight<kBits>(bits) & BroadcastInt(1);
  const I16 sum = bits + BroadcastInt((1 << (kBits - 1)) - 1) + odd;
  return FromBits(sum & BroadcastInt(-(1 << kBits)));
}

F16 ToBf16(F16 magnitude) { return DropBits<kBf16DroppedBits>(magnitude); }

F16 ToFp16(F16 magnitude) {
  const F16 magic = Broadcast(kFp16DenormalMagic);
  const F16 denormal = (magnitude + magic) - magic;
  const F16 rounded = DropBits<kFp16DroppedBits>(magnitude);
  const F16 normal = Select(NegativeLanes(Broadcast(kFp16Largest) - rounded),
                            FromBits(BroadcastInt(kInfinityBits)), rounded);
  return Select(NegativeLanes(magnitude - Broadcast(kFp16SmallestNormal)),
                denormal, normal);
}

template <F16 (*kRound)(F16)>
void Round(const RoundArgs& args) {
  const I16 sign_bit = BroadcastInt(INT32_MIN);
  const F16 nan = FromBits(BroadcastInt(static_cast<int32_t>(kNanBits)));
  ParallelForLanes(args.count, 5, [&](int64_t i, int64_t count) {
    const I16 bits = BitsOf(Load(args.x + i, count));
    const I16 magnitude = bits & BroadcastInt(INT32_MAX);
    const I16 rounded = BitsOf(kRound(FromBits(magnitude)));
    const F16 with_sign = FromBits(rounded + (bits & sign_bit));
    const I16 beyond_infinity = BroadcastInt(kInfinityBits) - magnitude;
    Store(Select(NegativeLanes(FromBits(beyond_infinity)), nan, with_sign),
          args.x + i, count);
  });
}

}  // namespace

void InstallRounding(Kernels& table) {
  table.round_to_bf16 = Round<ToBf16>;
  table.round_to_fp16 = Round<ToFp16>;
}

}  // namespace shardshift::kernels::SS_ISA
