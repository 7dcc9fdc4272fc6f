// Cross entropy over a vocabulary whose columns may be split over several
// shards. The caller combines over shards between the steps:
//
//   1 row_max            max_r     combine: max (exact)
//   2 exp_sum            Z_r       combine: tree over column leaves
//   3 predicted_logit    p_r       combine: sum (one owner, others +0)
//   4 TokenLoss          loss_r  = log(Z_r) - p_r
//   5 cross_entropy_backward
//
// Columns at or beyond vocab_size are padding: never read, never counted.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_CROSS_ENTROPY_H_
#define SHARDSHIFT_KERNELS_CROSS_ENTROPY_H_

#include <cstdint>

namespace shardshift::kernels {

// Columns [first_column, first_column + cols) of the padded vocabulary, for
// `rows` tokens. logits: [rows,cols], contiguous.
struct LogitsShard {
  const float* logits = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_column = 0;
  int64_t vocab_size = 0;
};

// max[r] = largest valid logit of the row (-0 becomes +0), -inf if there is
// none. max: [rows].
struct RowMaxArgs {
  LogitsShard shard = {};
  float* max = nullptr;
};

// sum[r] = sum of exp(logit - max[r]) over the valid columns: a lane sum
// (lane_sum.h) over each of `leaves` equal runs of columns, indexed from the
// run's first column, combined by the tree of tree.h. max: over all shards.
// REQUIRES: leaves >= 1, cols % leaves == 0.
struct ExpSumArgs {
  LogitsShard shard = {};
  const float* max = nullptr;
  int64_t leaves = 1;
  float* sum = nullptr;
};

// predicted[r] = logit of column targets[r] - max[r] if this shard owns it,
// else +0. targets: global ids, [rows].
struct PredictedLogitArgs {
  LogitsShard shard = {};
  const int32_t* targets = nullptr;
  const float* max = nullptr;
  float* predicted = nullptr;
};

// dlogits[r,c] = exp(logit - max[r]) / sum[r] - (c is the target), for the sum
// of the token losses; +0 in padding columns. sum: over all shards.
// dlogits: [rows,cols], may be shard.logits.
struct CrossEntropyBackwardArgs {
  LogitsShard shard = {};
  const int32_t* targets = nullptr;
  const float* max = nullptr;
  const float* sum = nullptr;
  float* dlogits = nullptr;
};

// loss[r] = float(log(sum[r])) - predicted[r]; log in double by math.h.
void TokenLoss(const float* sum, const float* predicted, int64_t rows,
               float* loss);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_CROSS_ENTROPY_H_
