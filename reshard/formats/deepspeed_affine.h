// The affine_map of universal_checkpoint_info: which blocks of a tensor the
// shard of each tensor-parallel rank consists of, by offsets and strides.
// Source: distributed-optimizer.md 4.4.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_AFFINE_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_AFFINE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/shard_map.h"

namespace shardshift::reshard {

// Of an entry of `params`, which must tell of each of the ranks.
// Errors: DataLoss for what contradicts itself, does not make up the tensor or
// a shard, or goes outside of one; Unimplemented for blocks that are no boxes
// of both, and for scaled ones.
absl::StatusOr<ShardMap> ReadAffineMap(const PickleValue& entry,
                                       int64_t num_ranks);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_AFFINE_H_
