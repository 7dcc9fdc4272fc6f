// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "kernels/lane_sum.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"
#include "kernels/tree.h"

namespace shardshift::kernels::ref {
namespace {

// How many of the shard's columns lie inside the vocabulary.
int64_t ValidColumns(const LogitsShard& shard) {
  return std::clamp<int64_t>(shard.vocab_size - shard.first_column, 0,
                             shard.cols);
}

void RowMax(const RowMaxArgs& args) {
  const int64_t valid = ValidColumns(args.shard);
  for (int64_t r = 0; r < args.shard.rows; ++r) {
    const float* row = args.shard.logits + r * args.shard.cols;
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < valid; ++c) max = std::max(max, row[c]);
    args.max[r] = max + 0.0F;
  }
}

float LeafExpSum(const float* logits, int64_t count, float max) {
  LaneSum sum;
  for (int64_t c = 0; c < count; ++c) sum.Add(c, Exp(logits[c] - max));
  return sum.Total();
}

float ExpSumNode(const ExpSumArgs& args, int64_t row, const TreeNode& node) {
  if (node.end - node.begin == 1) {
    const int64_t length = args.shard.cols / args.leaves;
    const int64_t begin = node.begin * length;
    const int64_t count =
        std::clamp<int64_t>(ValidColumns(args.shard) - begin, 0, length);
    return LeafExpSum(args.shard.logits + row * args.shard.cols + begin, count,
                      args.max[row]);
  }
  const int64_t split = SplitPoint(node);
  return ExpSumNode(args, row, {node.begin, split}) +
         ExpSumNode(args, row, {split, node.end});
}

void ExpSum(const ExpSumArgs& args) {
  assert(args.leaves >= 1 && args.shard.cols % args.leaves == 0);
  for (int64_t r = 0; r < args.shard.rows; ++r) {
    args.sum[r] = ExpSumNode(args, r, {0, args.leaves});
  }
}

void PredictedLogit(const PredictedLogitArgs& args) {
  const LogitsShard& shard = args.shard;
  for (int64_t r = 0; r < shard.rows; ++r) {
    const int64_t column = args.targets[r] - shard.first_column;
    const bool owned = column >= 0 && column < ValidColumns(shard);
    args.predicted[r] =
        owned ? shard.logits[r * shard.cols + column] - args.max[r] + 0.0F
              : 0.0F;
  }
}

void CrossEntropyBackward(const CrossEntropyBackwardArgs& args) {
  const LogitsShard& shard = args.shard;
  const int64_t valid = ValidColumns(shard);
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
