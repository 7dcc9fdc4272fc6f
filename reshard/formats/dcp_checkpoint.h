// A PyTorch distributed checkpoint as a source.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_CHECKPOINT_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_CHECKPOINT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/formats/dcp_metadata.h"
#include "reshard/formats/foreign_checkpoint.h"
#include "reshard/formats/source_tensors.h"

namespace shardshift::reshard {

// The tensors of a directory, each chunk found in its file, which is of
// torch.save's archives or one of safetensors.
// Errors: as ReadDcpMetadata, ResolveDcpChunk and ReadShardChunks; DataLoss for
// a file or a chunk that is missing; Unimplemented for values with gaps between
// them.
absl::StatusOr<SourceTensors> ReadDcpTensors(const std::string& directory,
                                             const DcpMetadata& metadata);

// What a directory holds. Without `.metadata`, if there are safetensors files
// instead, as HuggingFaceStorageWriter leaves them, `metadata` has nothing.
struct DcpContents {
  DcpMetadata metadata;
  SourceTensors source;
  std::vector<std::string> notes;  // for the user
};
absl::StatusOr<DcpContents> ReadDcp(const std::string& directory);

// Those of `metadata.bytes`, in order, in which nothing is too large: what each
// object is, by key, in base64. What is too large is named in `left_out`.
absl::StatusOr<nlohmann::json> ReadDcpObjects(
    const DcpContents& contents, std::vector<std::string>& left_out);

// The tensors under their keys. Objects that are no tensors go to the state, as
// the bytes that they are.
absl::StatusOr<ForeignCheckpoint> ReadGenericDcp(const std::string& directory,
                                                 int64_t step);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_CHECKPOINT_H_
