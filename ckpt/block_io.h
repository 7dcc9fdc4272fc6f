// One block of payload, between its file and memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_BLOCK_IO_H_
#define SHARDSHIFT_CKPT_BLOCK_IO_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/format/table.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {

// The elements of a fragment that block `block` holds: a range of the
// row-major order of its box.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
};
ElementRange BlockElements(const Table& table, const Fragment& fragment,
                           int64_t block);

// Elements of a fragment with a column pitch that lie in one column, as a range
// of its row-major order has them.
struct ColumnRun {
  int64_t place = 0;   // in the file, in elements after the fragment's first
  int64_t first = 0;   // in the range,
  int64_t stride = 0;  // and how far the next ones are apart there
  int64_t count = 0;
};
// Visits the runs that make up elements [begin, begin + count) of the
// row-major order, count > 0. Stops at an error, and gives it.
absl::Status ForEachColumnRun(
    const Fragment& fragment, int64_t begin, int64_t count,
    absl::FunctionRef<absl::Status(const ColumnRun& run)> visit);

// Fills `bytes` with those of a block without a codec from byte `begin` on, as
// they lie in the dense row-major image of its fragment. Verifies nothing.
// REQUIRES: whole elements.
absl::Status ReadPlain(const File& file, const Table& table,
                       const Fragment& fragment, int64_t block, int64_t begin,
                       std::span<std::byte> bytes);

// Compares the checksum of a block as it is stored; a foreign one has none.
// Errors: DataLoss, naming file, tensor and offset.
absl::Status CheckBlock(const File& file, const Table& table,
                        const Fragment& fragment, int64_t block,
                        uint64_t checksum);

// Reads a block from its part file, as it is stored there, and verifies it.
// Gives its bytes, which lie in `buffer`, at the front.
// REQUIRES: `buffer` has room for the block as stored, and for its values.
// Errors: DataLoss, naming file, tensor and offset.
absl::StatusOr<std::span<const std::byte>> ReadStoredBlock(
    const File& file, const Table& table, const Fragment& fragment,
    int64_t block, std::span<std::byte> buffer);

// The same, taken out of its codec: gives the block's values.
absl::StatusOr<std::span<const std::byte>> ReadBlock(
    const File& file, const Table& table, const Fragment& fragment,
    int64_t block, std::span<std::byte> buffer);

// The same for a reader that wants the values once: gives them to `visit` in
// order, each piece while it is in the processor's cache. Only the status
// vouches for what `visit` saw.
absl::Status StreamBlock(
    const File& file, const Table& table, const Fragment& fragment,
    int64_t block, std::span<std::byte> buffer,
    absl::FunctionRef<void(ElementRange elements,
                           std::span<const std::byte> values)>
        visit);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_BLOCK_IO_H_
