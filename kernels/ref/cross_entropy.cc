// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "kernels/cross_entropy_shape.h"
#include "kernels/lane_sum.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

void RowMax(const RowMaxArgs& args) {
  const int64_t valid = NumValidColumns(args.shard);
  for (int64_t r = 0; r < args.shard.rows; ++r) {
    const float* row = args.shard.logits + r * args.shard.cols;
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < valid; ++c) max = std::max(max, row[c]);
    args.max[r] = max + 0.0F;
  }
}

float LeafSum(const float* logits, int64_t count, float max) {
  LaneSum sum;
  for (int64_t c = 0; c < count; ++c) sum.Add(c, Exp(logits[c] - max));
  return sum.Total();
}

void ExpSum(const ExpSumArgs& args) { ExpSumOverLeaves(args, LeafSum); }

void PredictedLogit(const PredictedLogitArgs& args) {
  const LogitsShard& shard = args.shard;
  for (int64_t r = 0; r < shard.rows; ++r) {
    const int64_t column = args.targets[r] - shard.first_column;
    const bool owned = column >= 0 && column < NumValidColumns(shard);
    args.predicted[r] =
        owned ? shard.logits[r * shard.cols + column] - args.max[r] + 0.0F
              : 0.0F;
  }
}

void CrossEntropyBackward(const CrossEntropyBackwardArgs& args) {
  const LogitsShard& shard = args.shard;
  const int64_t valid = NumValidColumns(shard);
  for (int64_t r = 0; r < shard.rows; ++r) {
    const float* row = shard.logits + r * shard.cols;
    float* dlogits = args.dlogits + r * shard.cols;
    for (int64_t c = 0; c < valid; ++c) {
      dlogits[c] = Exp(row[c] - args.max[r]) / args.sum[r];
    }
    std::fill(dlogits + valid, dlogits + shard.cols, 0.0F);
    const int64_t target = args.targets[r] - shard.first_column;
    if (target >= 0 && target < valid) dlogits[target] -= 1.0F;
  }
}

}  // namespace

void InstallCrossEntropy(Kernels& table) {
  table.row_max = RowMax;
  table.exp_sum = ExpSum;
  table.predicted_logit = PredictedLogit;
  table.cross_entropy_backward = CrossEntropyBackward;
}

}  // namespace shardshift::kernels::ref
