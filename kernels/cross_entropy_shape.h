// What every backend of the cross entropy shares: which columns count, and the
// tree over the leaves of a row. Internal to kernels/.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_CROSS_ENTROPY_SHAPE_H_
#define SHARDSHIFT_KERNELS_CROSS_ENTROPY_SHAPE_H_

#include <cstdint>

#include "kernels/cross_entropy.h"

namespace shardshift::kernels {

// How many of the shard's columns, from the first, lie inside the vocabulary.
int64_t NumValidColumns(const LogitsShard& shard);

// The exp_sum kernel, given the lane sum of exp(logits[i] - max), i < count.
using LeafExpSum = float (*)(const float* logits, int64_t count, float max);
void ExpSumOverLeaves(const ExpSumArgs& args, LeafExpSum leaf_exp_sum);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_CROSS_ENTROPY_SHAPE_H_
