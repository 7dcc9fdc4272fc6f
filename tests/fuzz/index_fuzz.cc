// Reads bytes as a user block, as the table of an index or of a part, and as
// an index file with such a table, whose checksums hold. What decodes has one
// encoding; whatever it says, nothing crashes.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "ckpt/core/checksum.h"
#include "ckpt/core/coding.h"
#include "ckpt/format/table.h"
#include "ckpt/format/user_block.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "tests/testutil/memory_disk.h"

namespace shardshift::ckpt {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

// With a checksum that holds, or no fuzzer would come past it.
std::string WithChecksum(absl::string_view bytes) {
  std::string block(bytes.data(), bytes.size());
  block.resize(kUserBlockBytes - 8, '\0');
  Encoder checksum;
  checksum.PutU64(Checksum64(AsBytes(block)));
  return block + checksum.bytes();
}

void ReadUserBlock(absl::string_view bytes) {
  DecodeUserBlock(AsBytes(bytes)).IgnoreError();
  const auto block = DecodeUserBlock(AsBytes(WithChecksum(bytes)));
  if (!block.ok()) return;
  const auto again = DecodeUserBlock(AsBytes(EncodeUserBlock(*block)));
  Require(again.ok() && *again == *block);
}

// A finished file of a user block and `table`.
std::string FileOf(FileRole role, absl::string_view table) {
  const UserBlock block = {
      .role = role,
      .file_bytes = kUserBlockBytes + static_cast<int64_t>(table.size()),
      .table_offset_bytes = kUserBlockBytes,
      .table_bytes = static_cast<int64_t>(table.size()),
      .table_checksum = Checksum64(AsBytes(table))};
  return EncodeUserBlock(block) + std::string(table.data(), table.size());
}

// Opens, checks and reads a checkpoint of an index with `table`, and of its
// first part, if it has one of that size.
void ReadCheckpoint(const Table& table, absl::string_view bytes) {
  static constexpr char kStepDir[] = "/fuzz/saved";
  MemoryDisk disk(kStepDir,
                  {{kIndexFileName, FileOf(FileRole::kIndex, bytes)}});
  if (!table.parts.empty()) {
    disk.files()[PartFileName(table.parts[0].number)] =
        FileOf(FileRole::kPart, bytes);
  }
  const ScopedSystemCalls scope(disk);
  Require(ReadIndexTable(kStepDir).ok());
  Verify(kStepDir, /*deep=*/true, [](const Fault&) {}).IgnoreError();
  const auto reader = Reader::Open(kStepDir);
  if (!reader.ok()) return;
  std::byte element[16];
  for (size_t t = 0; t < table.tensors.size(); ++t) {
    const Shape& shape = table.tensors[t].shape;
    if (NumElements(shape) == 0) continue;
    const Box first = {Shape(shape.size(), 0), Shape(shape.size(), 1)};
    (*reader)
        ->ReadTensor(static_cast<int64_t>(t), first, element)
        .IgnoreError();
  }
}

void ReadIndex(absl::string_view bytes) {
  const auto table = DecodeIndexTable(AsBytes(bytes));
  if (!table.ok()) return;
  Require(EncodeTable(*table) == bytes);
  RootFingerprintOf(*table);
  ReadCheckpoint(*table, bytes);
}

void ReadPart(absl::string_view bytes) {
  constexpr int64_t kFileBytes = int64_t{1} << 40;
  const auto table = DecodePartTable(AsBytes(bytes), kFileBytes);
  if (!table.ok()) return;
  Require(EncodeTable(*table) == bytes);
  int64_t end = kUserBlockBytes;
  for (const ByteRange& range : PayloadRanges(*table)) {
    Require(range.begin >= end && range.begin < range.end);
    end = range.end;
  }
  Require(end <= kFileBytes);
}

// The first byte chooses the reader.
void Read(absl::string_view input) {
  if (input.empty()) return;
  const absl::string_view bytes = input.substr(1);
  switch (static_cast<uint8_t>(input.front()) % 3) {
    case 0:
      return ReadUserBlock(bytes);
    case 1:
      return ReadIndex(bytes);
    default:
      return ReadPart(bytes);
  }
}

}  // namespace
}  // namespace shardshift::ckpt

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardshift::ckpt::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}
