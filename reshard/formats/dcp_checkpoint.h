// A PyTorch distributed checkpoint as a source.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_CHECKPOINT_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "reshard/formats/dcp_metadata.h"
#include "reshard/formats/foreign_checkpoint.h"
#include "reshard/formats/source_tensors.h"

namespace shardshift::reshard {

// The tensors of a directory, each chunk found in its file.
// Errors: as ReadDcpMetadata and ResolveDcpChunk; DataLoss for a file that is
// missing; Unimplemented for values with gaps between them.
absl::StatusOr<SourceTensors> ReadDcpTensors(const std::string& directory,
                                             const DcpMetadata& metadata);

// The tensors under their keys. Objects that are no tensors go to the state, as
// the bytes that they are.
absl::StatusOr<ForeignCheckpoint> ReadGenericDcp(const std::string& directory,
                                                 int64_t step);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_CHECKPOINT_H_
