// How a model is split over safetensors files.
// Source: huggingface_hub 2.4, split_torch_state_dict_into_shards.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_SHARDS_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_SHARDS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// The default of transformers 5; before it was 5 GB.
inline constexpr int64_t kDefaultMaxShardBytes = 50'000'000'000;

// Bytes of "50GB", "1.5 tb" or "1000": KB, MB, GB and TB are powers of 1000.
// Errors: InvalidArgument if it is no such size, or not above zero.
absl::StatusOr<int64_t> ParseShardBytes(absl::string_view text);

// Splits tensors of given sizes, in their order, into files of at most
// `max_bytes` of data; a larger tensor has a file to itself, which comes before
// the one under way. Gives the tensors of each file; always one file at least.
// REQUIRES: max_bytes > 0.
std::vector<std::vector<int64_t>> PlanShards(
    std::span<const int64_t> tensor_bytes, int64_t max_bytes);

// "model-00001-of-00004.safetensors", from 0 on; "model.safetensors" of one.
std::string ShardName(int64_t shard, int64_t num_shards);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_SHARDS_H_
