// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/storage_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/box.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/crc32.h"
#include "ckpt/core/dtype.h"
#include "ckpt/foreign_writer.h"
#include "reshard/formats/zip.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {
namespace {

uint32_t CrcOf(const std::string& bytes) {
  return ckpt::UpdateCrc32(0, ckpt::AsBytes(bytes));
}

StoragePiece BytesAt(int64_t offset_bytes, int64_t num_bytes) {
  const ckpt::Shape shape = {num_bytes};
  return {{"t", "weight", ckpt::DType::kU8, shape, ckpt::WholeBox(shape)},
          offset_bytes};
}

TEST(StoragePieces, CrcOfZerosIsThatOfTheBytes) {
  for (const int64_t size : {0, 1, 2, 3, 7, 64, 100, 4096, 70001}) {
    EXPECT_EQ(Crc32OfZeros(size), CrcOf(std::string(size, '\0'))) << size;
  }
  // Of more than anyone would write: no loop over the bytes.
  EXPECT_NE(Crc32OfZeros(int64_t{1} << 60), 0U);
}

TEST(StoragePieces, CrcOfAStorageCountsTheZerosBetween) {
  const std::string first = "pieces of";
  const std::string second = "a storage";
  const std::string zeros(5, '\0');
  ckpt::ForeignFile file;
  file.specs.resize(2);  // of another storage
  file.places.resize(2);
  const auto crc_of = [&](int64_t begin, int64_t gap, int64_t end) {
    ckpt::ForeignFile filled = file;
    const int64_t next = begin + std::ssize(first) + gap;
    const int64_t num_bytes = next + std::ssize(second) + end;
    const PlacedStorage storage(
        {BytesAt(begin, std::ssize(first)), BytesAt(next, std::ssize(second))},
        {1000, num_bytes}, filled);
    EXPECT_EQ(filled.specs.size(), 4U);
    EXPECT_EQ(filled.places[2].offset_bytes, 1000 + begin);
    EXPECT_EQ(filled.places[3].offset_bytes, 1000 + next);
    return storage.Crc(
        std::vector<uint32_t>{7, 7, CrcOf(first), CrcOf(second)});
  };
  const auto zero = [](int64_t n) { return std::string(n, '\0'); };
  for (const int64_t begin : {0, 3}) {
    for (const int64_t gap : {0, 8}) {
      for (const int64_t end : {0, 1, 66}) {
        EXPECT_EQ(crc_of(begin, gap, end),
                  CrcOf(absl::StrCat(zero(begin), first, zero(gap), second,
                                     zero(end))));
      }
    }
  }
}

TEST(StoragePieces, StorageWithoutPiecesIsZero) {
  ckpt::ForeignFile file;
  const PlacedStorage storage({}, {64, 48}, file);
  EXPECT_EQ(storage.Crc({}), CrcOf(std::string(48, '\0')));
  EXPECT_TRUE(file.specs.empty());
}

TEST(StoragePieces, PiecesOfAParameterAreInBytes) {
  const std::vector<LogicalTensor> tensors = {{"a", {4, 2}}, {"b", {6}}};
  const std::vector<Piece> pieces = {{0, {{1, 0}, {2, 2}}, 0},
                                     {1, {{3}, {3}}, 8}};
  const std::vector<StoragePiece> found =
      StoragePiecesOf(pieces, tensors, "exp_avg", ckpt::DType::kF32);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].offset_bytes, 32);
  EXPECT_EQ(found[1].spec.tensor, "b");
  EXPECT_EQ(found[1].spec.role, "exp_avg");
  EXPECT_EQ(found[1].spec.shape, ckpt::Shape({6}));
  EXPECT_EQ(found[0].spec.box, pieces[0].box);
}

}  // namespace
}  // namespace shardshift::reshard
