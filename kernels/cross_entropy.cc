// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cassert>

#include "kernels/cross_entropy_shape.h"
#include "kernels/math.h"
#include "kernels/parallel.h"
#include "kernels/tree.h"

namespace shardshift::kernels {
namespace {

float ExpSumNode(const ExpSumArgs& args, LeafExpSum leaf_exp_sum, int64_t row,
                 const TreeNode& node) {
  if (node.end - node.begin == 1) {
    const int64_t length = args.shard.cols / args.leaves;
    const int64_t begin = node.begin * length;
    const int64_t count =
        std::clamp<int64_t>(NumValidColumns(args.shard) - begin, 0, length);
    return leaf_exp_sum(args.shard.logits + row * args.shard.cols + begin,
                        count, args.max[row]);
  }
  const int64_t split = SplitPoint(node);
  return ExpSumNode(args, leaf_exp_sum, row, {node.begin, split}) +
         ExpSumNode(args, leaf_exp_sum, row, {split, node.end});
}

}  // namespace

int64_t NumValidColumns(const LogitsShard& shard) {
  return std::clamp<int64_t>(shard.vocab_size - shard.first_column, 0,
                             shard.cols);
}

void ExpSumOverLeaves(const ExpSumArgs& args, LeafExpSum leaf_exp_sum) {
  assert(args.leaves >= 1 && args.shard.cols % args.leaves == 0);
  ParallelRanges(
      args.shard.rows, args.shard.cols, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          args.sum[r] = ExpSumNode(args, leaf_exp_sum, r, {0, args.leaves});
        }
      });
}

void TokenLoss(const float* sum, const float* predicted, int64_t rows,
               float* loss) {
  for (int64_t r = 0; r < rows; ++r) {
    loss[r] = static_cast<float>(Log(sum[r])) - predicted[r];
  }
}

}  // namespace shardshift::kernels
