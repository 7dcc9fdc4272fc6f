// The safetensors files that a PyTorch distributed checkpoint may consist of.
// Each holds chunks of tensors and tells in its metadata where they belong.
// Source: checkpoint-formats.md 2.2, and PyTorch 2.15.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_SHARDS_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_SHARDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/io/file.h"
#include "reshard/formats/safetensors.h"
#include "reshard/formats/source_tensors.h"

namespace shardshift::reshard {

// Dense from byte `offset_bytes` of its file on. Where a rank holds none of a
// tensor, the box has no element.
struct ShardChunk {
  std::string fqn;
  ckpt::Box box;
  int64_t offset_bytes = 0;
  ckpt::DType dtype = ckpt::DType::kF32;
};

// What a header says of its tensors.
// Errors: DataLoss naming what is missing or wrong in DCP_SHARDING_INFO;
// Unimplemented for another DCP_VERSION than 1.0.
absl::StatusOr<std::vector<ShardChunk>> ParseShardChunks(
    const SafetensorsHeader& header);

// Those of an open file, which is safetensors from byte `begin` on.
// Errors: as ReadSafetensorsHeader and ParseShardChunks, naming the file.
absl::StatusOr<std::vector<ShardChunk>> ReadShardChunks(const ckpt::File& file,
                                                        int64_t begin = 0);

// The tensors that the chunks of some files make up: `chunks[i]` are those of
// file i. A tensor is as large as its chunks reach.
// Errors: DataLoss naming a tensor whose chunks differ in dtype or number of
// dimensions, overlap or leave a hole.
absl::StatusOr<std::vector<SourceTensor>> JoinShardChunks(
    const std::vector<std::vector<ShardChunk>>& chunks);

// "shard-00001-model-00002-of-00003.safetensors", a rank's part of a file: as
// HuggingFaceStorageWriter names it.
bool IsShardName(absl::string_view name);

// The directory of that writer, which has no `.metadata`: all its safetensors
// files.
// Errors: as above; NotFound if there is none; DataLoss if of files that are
// counted one is missing in every rank.
absl::StatusOr<SourceTensors> ReadShardDirectory(const std::string& directory);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_SHARDS_H_
