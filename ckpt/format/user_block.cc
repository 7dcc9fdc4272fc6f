// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/user_block.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {
namespace {

// As PNG's: the high bit shows a 7-bit channel, \r\n and \n a text-mode copy.
constexpr absl::string_view kMagic("\x89SSC\r\n\x1a\n", 8);
constexpr size_t kChecksumOffset = kUserBlockBytes - 8;

// The block's fields, the digest as given, padded up to the checksum.
std::string EncodeFields(const UserBlock& block, const Digest128& digest) {
  Encoder out;
  for (const char c : kMagic) out.PutU8(static_cast<uint8_t>(c));
  out.PutU32(kFormatVersion);
  out.PutU32(static_cast<uint32_t>(block.role));
  out.PutInt(block.file_bytes);
  out.PutInt(block.table_offset_bytes);
  out.PutInt(block.table_bytes);
  out.PutU64(block.table_checksum);
  out.PutU64(digest.low);
  out.PutU64(digest.high);
  std::string bytes = out.bytes();
  bytes.resize(kChecksumOffset, '\0');
  return bytes;
}

absl::Status CheckFields(const UserBlock& block) {
  if (block.role != FileRole::kPart && block.role != FileRole::kIndex) {
    return absl::DataLossError("user block: unknown file role");
  }
  if (block.table_bytes > kMaxTableBytes) {
    return absl::DataLossError(
        absl::StrCat("user block: a table of ", block.table_bytes,
                     " bytes, more than ", kMaxTableBytes));
  }
  if (block.table_offset_bytes < kUserBlockBytes ||
      block.table_bytes > block.file_bytes ||
      block.table_offset_bytes > block.file_bytes - block.table_bytes) {
    return absl::DataLossError("user block: the table is outside the file");
  }
  return absl::OkStatus();
}

// What lies between the user block, the payload and the end of the file.
std::vector<ByteRange> RangesOfMetadata(int64_t file_bytes,
                                        std::span<const ByteRange> payload) {
  std::vector<ByteRange> ranges;
  int64_t begin = kUserBlockBytes;
  for (const ByteRange& range : payload) {
    ranges.push_back({begin, range.begin});
    begin = range.end;
  }
  ranges.push_back({begin, file_bytes});
  return ranges;
}

using ReadFn =
    absl::FunctionRef<absl::Status(int64_t offset, std::span<std::byte>)>;

// The metadata digest of a file with the user block `block` and these ranges.
absl::StatusOr<Digest128> DigestOf(const UserBlock& block,
                                   std::span<const ByteRange> metadata,
                                   ReadFn read) {
  Digest128Stream stream;
  std::string user_block = EncodeFields(block, Digest128());
  user_block.resize(kUserBlockBytes, '\0');
  stream.Update(AsBytes(user_block));
  std::vector<std::byte> buffer(
      static_cast<size_t>(std::min(block.file_bytes, int64_t{1} << 20)));
  for (const ByteRange& range : metadata) {
    for (int64_t offset = range.begin; offset < range.end;) {
      const int64_t size =
          std::min(range.end - offset, static_cast<int64_t>(buffer.size()));
      const auto piece = std::span(buffer).first(static_cast<size_t>(size));
      SS_RETURN_IF_ERROR(read(offset, piece));
      stream.Update(piece);
      offset += size;
    }
  }
  return stream.Digest();
}

}  // namespace

std::string EncodeUserBlock(const UserBlock& block) {
  std::string bytes = EncodeFields(block, block.metadata_digest);
  Encoder checksum;
  checksum.PutU64(Checksum64(AsBytes(bytes)));
  return bytes + checksum.bytes();
}

absl::StatusOr<UserBlock> DecodeUserBlock(std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) != kUserBlockBytes) {
    return absl::DataLossError(
        "user block: not a finished file of a checkpoint (shorter than 4096 "
        "bytes)");
  }
  const auto magic = AsBytes(kMagic);
  if (!std::equal(magic.begin(), magic.end(), bytes.begin())) {
    return absl::DataLossError(
        "user block: not a finished file of a checkpoint (no magic number)");
  }
  Decoder checksum(bytes.subspan(kChecksumOffset));
  if (checksum.GetU64() != Checksum64(bytes.first(kChecksumOffset))) {
    return absl::DataLossError("user block: checksum differs");
  }
  Decoder in(bytes.subspan(kMagic.size()));
  if (const uint32_t version = in.GetU32(); version != kFormatVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "format version ", version, ", this program reads ", kFormatVersion));
  }
  UserBlock block;
  block.role = static_cast<FileRole>(in.GetU32());
  block.file_bytes = in.GetInt();
  block.table_offset_bytes = in.GetInt();
  block.table_bytes = in.GetInt();
  block.table_checksum = in.GetU64();
  block.metadata_digest.low = in.GetU64();
  block.metadata_digest.high = in.GetU64();
  if (!in.ok()) return absl::DataLossError("user block: number too large");
  SS_RETURN_IF_ERROR(CheckFields(block));
  if (!std::ranges::equal(AsBytes(EncodeUserBlock(block)), bytes)) {
    return absl::DataLossError("user block: bytes of no field are not zero");
  }
  return block;
}

absl::StatusOr<UserBlock> ReadUserBlock(const File& file, FileRole role) {
  SS_ASSIGN_OR_RETURN(const int64_t file_bytes, file.Size());
  std::vector<std::byte> bytes(
      static_cast<size_t>(std::min(file_bytes, kUserBlockBytes)));
  SS_RETURN_IF_ERROR(file.ReadAt(0, bytes));
  absl::StatusOr<UserBlock> block = DecodeUserBlock(bytes);
  if (!block.ok()) return Annotate(block.status(), file.path());
  if (block->role != role) {
    return absl::DataLossError(absl::StrCat(file.path(), " is ",
                                            role == FileRole::kPart
                                                ? "an index, expected a part"
                                                : "a part, expected an index"));
  }
  if (block->file_bytes != file_bytes) {
    return absl::DataLossError(absl::StrCat(file.path(), " has ", file_bytes,
                                            " bytes, expected ",
                                            block->file_bytes));
  }
  return block;
}

absl::StatusOr<PageVector<std::byte>> ReadTableBytes(const File& file,
                                                     const UserBlock& block) {
  PageVector<std::byte> bytes(static_cast<size_t>(block.table_bytes));
  SS_RETURN_IF_ERROR(file.ReadAt(block.table_offset_bytes, bytes));
  if (Checksum64(bytes) != block.table_checksum) {
    return absl::DataLossError(absl::StrCat(file.path(), " table at byte ",
                                            block.table_offset_bytes,
                                            ": checksum differs"));
  }
  return bytes;
}

absl::StatusOr<Digest128> ComputeMetadataDigest(
    const File& file, const UserBlock& block,
    std::span<const ByteRange> payload) {
  return DigestOf(block, RangesOfMetadata(block.file_bytes, payload),
                  [&](int64_t offset, std::span<std::byte> bytes) {
                    return file.ReadAt(offset, bytes);
                  });
}

absl::Status CheckMetadataDigest(const File& file, const UserBlock& block,
                                 std::span<const ByteRange> payload) {
  SS_ASSIGN_OR_RETURN(const Digest128 digest,
                      ComputeMetadataDigest(file, block, payload));
  if (digest == block.metadata_digest) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      file.path(), ": digest of all that is not payload is ", ToString(digest),
      ", expected ", ToString(block.metadata_digest)));
}

absl::StatusOr<UserBlock> SealFile(const File& file, FileImage image,
                                   UserBlock block, absl::string_view table,
                                   std::span<const ByteRange> payload) {
  image.Put(block.table_offset_bytes, AsBytes(table));
  block.file_bytes = image.file_bytes();
  block.table_bytes = static_cast<int64_t>(table.size());
  block.table_checksum = Checksum64(AsBytes(table));
  const std::vector<ByteRange> metadata =
      RangesOfMetadata(block.file_bytes, payload);
  SS_ASSIGN_OR_RETURN(block.metadata_digest,
                      DigestOf(block, metadata,
                               [&](int64_t offset, std::span<std::byte> bytes) {
                                 image.Get(offset, bytes);
                                 return absl::OkStatus();
                               }));
  SS_RETURN_IF_ERROR(file.Allocate(block.file_bytes));
  for (const ByteRange& range : metadata) {
    SS_RETURN_IF_ERROR(image.Write(file, range));
  }
  SS_RETURN_IF_ERROR(file.WriteAt(0, AsBytes(EncodeUserBlock(block))));
  SS_RETURN_IF_ERROR(file.Sync());
  return block;
}

}  // namespace shardshift::ckpt
