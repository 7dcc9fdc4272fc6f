// The 4 KiB user block at offset 0 of every .h5 file of a checkpoint: what
// our reader checks before it believes anything else in the file.
//
// Layout: FORMAT.md, "User block".
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_FORMAT_USER_BLOCK_H_
#define SHARDSHIFT_CKPT_FORMAT_USER_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/page_memory.h"
#include "ckpt/format/file_image.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {

inline constexpr int64_t kUserBlockBytes = 4096;
inline constexpr uint32_t kFormatVersion = 1;
inline constexpr int64_t kMaxTableBytes = int64_t{4} << 30;

enum class FileRole : uint32_t { kPart = 1, kIndex = 2 };

struct UserBlock {
  FileRole role = FileRole::kPart;
  int64_t file_bytes = 0;
  int64_t table_offset_bytes = 0;
  int64_t table_bytes = 0;
  uint64_t table_checksum = 0;
  // Of every byte of the file that is not payload, in file order, with the
  // digest itself and the block's own checksum taken as zeros. As it covers
  // the table with its payload checksums, it identifies the whole file.
  Digest128 metadata_digest = {};

  friend bool operator==(const UserBlock&, const UserBlock&) = default;
};

// kUserBlockBytes bytes.
std::string EncodeUserBlock(const UserBlock& block);

// Errors: DataLoss for bytes that are not a user block (another magic, a bad
// checksum, places outside the file), Unimplemented for another version.
absl::StatusOr<UserBlock> DecodeUserBlock(std::span<const std::byte> bytes);

// Reads the user block of `file` and checks that it has the expected role and
// names the file's true size.
absl::StatusOr<UserBlock> ReadUserBlock(const File& file, FileRole role);

// The bytes of the table that `block` of `file` names, verified.
absl::StatusOr<PageVector<std::byte>> ReadTableBytes(const File& file,
                                                     const UserBlock& block);

// The metadata digest of `file`, whose user block is to be `block` and whose
// payload lies at `payload`. The block on disk is not read.
// REQUIRES: payload ascends without overlap, between the user block and the
// end of the file.
absl::StatusOr<Digest128> ComputeMetadataDigest(
    const File& file, const UserBlock& block,
    std::span<const ByteRange> payload);

// Whether that is the digest that `block` names.
// Errors: DataLoss, naming the file.
absl::Status CheckMetadataDigest(const File& file, const UserBlock& block,
                                 std::span<const ByteRange> payload);

// Finishes a file of which nothing but the payload is written: adds `table` to
// the rest, `image`, sets the size, writes that and last the user block, syncs,
// and gives the block as written. Role, part and table offset of `block` are
// given.
absl::StatusOr<UserBlock> SealFile(const File& file, FileImage image,
                                   UserBlock block, absl::string_view table,
                                   std::span<const ByteRange> payload);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_FORMAT_USER_BLOCK_H_
