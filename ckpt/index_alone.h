// A checkpoint's index without its parts: what plans are made from, at any
// size, where the values are not.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_INDEX_ALONE_H_
#define SHARDSHIFT_CKPT_INDEX_ALONE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {

// What PartWriter would give for a part that nobody writes, but for what comes
// of values and of libhdf5: fingerprints, checksums and the digest are zero,
// and blocks follow each other. Errors: as PartWriter::Create.
absl::StatusOr<PartReceipt> ReceiptWithoutPart(
    int64_t part, const CheckpointId& id,
    const std::vector<FragmentSpec>& specs);

// Publishes RUN/step-N with an index of such receipts, without views, and
// points RUN/latest to it. Its directory is that of BeginCheckpoint.
// Errors: AlreadyExists if step N is there; InvalidArgument if the receipts do
// not make whole tensors.
absl::Status CommitIndexAlone(const std::string& run_dir,
                              const CheckpointId& id,
                              const std::vector<PartReceipt>& receipts,
                              absl::string_view record);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_INDEX_ALONE_H_
