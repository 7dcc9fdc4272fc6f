// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/math.h"
#include "kernels/cross_entropy_shape.h"

namespace shardshift::kernels::SS_ISA {
namespace {

void RowMax(const RowMaxArgs& args) {
  const int64_t valid = NumValidColumns(args.shard);
  const F16 lowest = Broadcast(-__builtin_inff());
  ParallelForRows(args.shard.rows, valid, 3, [&](int64_t r) {
    const float* row = args.shard.logits + r * args.shard.cols;
    F16 max = lowest;
    ForLanes(valid, [&](int64_t c, int64_t count) {
      max = Max(Select(FirstLanes(count), Load(row + c, count), lowest), max);
    });
    args.max[r] = MaxLane(max) + 0.0F;
  });
}

float LeafSum(const float* logits, int64_t count, float max) {
  const F16 leaf_max = Broadcast(max);
  F16 sum = Broadcast(0.0F);
  ForLanes(count, [&](int64_t c, int64_t n) {
    sum = sum + KeepFirst(Exp(Load(logits + c, n) - leaf_max), n);
  });
  return FoldLanes(sum);
}

void ExpSum(const ExpSumArgs& args) { ExpSumOverLeaves(args, LeafSum); }

void CrossEntropyBackward(const CrossEntropyBackwardArgs& args) {
  const LogitsShard& shard = args.shard;
  const int64_t valid = NumValidColumns(shard);
  ParallelForRows(shard.rows, valid, 15, [&](int64_t r) {
    const float* row = shard.logits + r * shard.cols;
    float* dlogits = args.dlogits + r * shard.cols;
    const F16 max = Broadcast(args.max[r]);
    const F16 sum = Broadcast(args.sum[r]);
    ForLanes(valid, [&](int64_t c, int64_t count) {
      Store(Exp(Load(row + c, count) - max) / sum, dlogits + c, count);
    });
    for (int64_t c = valid; c < shard.cols; ++c) dlogits[c] = 0.0F;
    const int64_t target = args.targets[r] - shard.first_column;
    if (target >= 0 && target < valid) dlogits[target] -= 1.0F;
  });
}

}  // namespace

void InstallCrossEntropy(Kernels& table) {
  table.row_max = RowMax;
  table.exp_sum = ExpSum;
  table.cross_entropy_backward = CrossEntropyBackward;
}

}  // namespace shardshift::kernels::SS_ISA
