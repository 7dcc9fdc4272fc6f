// Codec::kShuffleZstd: what HDF5's filters 2 (byte shuffle) and 32015 (zstd)
// make of one chunk, and back. A chunk holds one block; a short block is padded
// with zeros to the chunk.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CODEC_SHUFFLE_ZSTD_H_
#define SHARDSHIFT_CKPT_CODEC_SHUFFLE_ZSTD_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/checksum.h"

namespace shardshift::ckpt {

// All functions are thread-safe. `planes` has the size of the chunk and is
// scratch memory; it holds `values`, if not more, and overlaps neither of the
// others.

// Compresses `values`, items of item_size bytes, into `stored`, which has
// kMaxStoredBytes, and gives their number. Depends on the arguments and the
// version of libzstd only. Errors: ResourceExhausted.
absl::StatusOr<int64_t> CompressBlock(std::span<const std::byte> values,
                                      int64_t item_size,
                                      std::span<std::byte> planes,
                                      std::span<std::byte> stored);

// Fills `values`, which may overlap `stored`. `stored` may be anything: memory
// does not depend on it. Errors: DataLoss unless it is one frame of exactly a
// chunk; ResourceExhausted.
absl::Status DecompressBlock(std::span<const std::byte> stored,
                             int64_t item_size, std::span<std::byte> planes,
                             std::span<std::byte> values);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CODEC_SHUFFLE_ZSTD_H_
