// SPDX-License-Identifier: Apache-2.0
#include "ckpt/io/aligned_buffer.h"

#include <limits>
#include <utility>

#include "ckpt/core/checksum.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::HasSubstr;

uintptr_t AddressOf(std::span<const std::byte> bytes) {
  return reinterpret_cast<uintptr_t>(bytes.data());
}

TEST(AlignedBuffer, StartsOnADirectBlockAndIsWholeBlocks) {
  for (const int64_t num_bytes : {1, 4095, 4096, 4097, 100'000}) {
    ASSERT_OK_AND_ASSIGN(const AlignedBuffer buffer,
                         AlignedBuffer::Allocate(num_bytes));
    EXPECT_EQ(std::ssize(buffer.bytes()), (num_bytes + 4095) / 4096 * 4096);
    EXPECT_EQ(AddressOf(buffer.bytes()) % 4096, 0u);
  }
}

TEST(AlignedBuffer, StartsOnAHugePageWhenLarge) {
  ASSERT_OK_AND_ASSIGN(AlignedBuffer buffer,
                       AlignedBuffer::Allocate((int64_t{2} << 20) + 1));
  EXPECT_EQ(AddressOf(buffer.bytes()) % (2 << 20), 0u);
  EXPECT_EQ(buffer.bytes().size(), (2u << 20) + 4096u);
  buffer.bytes().back() = std::byte{1};
}

TEST(AlignedBuffer, IsEmptyAtFirstForNoBytesAndAfterAMove) {
  EXPECT_TRUE(AlignedBuffer().bytes().empty());
  ASSERT_OK_AND_ASSIGN(const AlignedBuffer none, AlignedBuffer::Allocate(0));
  EXPECT_TRUE(none.bytes().empty());
  ASSERT_OK_AND_ASSIGN(AlignedBuffer first, AlignedBuffer::Allocate(1));
  const uintptr_t address = AddressOf(first.bytes());
  const AlignedBuffer second = std::move(first);
  EXPECT_EQ(AddressOf(second.bytes()), address);
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_TRUE(first.bytes().empty());
}

TEST(AlignedBuffer, RefusesWhatCannotBe) {
  EXPECT_THAT(
      AlignedBuffer::Allocate(-1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1 bytes")));
  EXPECT_THAT(AlignedBuffer::Allocate(std::numeric_limits<int64_t>::max()),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("9223372036854775807 bytes")));
}

TEST(StagingBuffer, IsOneBlockOfItsHolderAlone) {
  ASSERT_OK_AND_ASSIGN(const StagingBuffer a, StagingBuffer::Take());
  ASSERT_OK_AND_ASSIGN(const StagingBuffer b, StagingBuffer::Take());
  EXPECT_EQ(std::ssize(a.bytes()), kMaxStoredBytes);
  EXPECT_EQ(AddressOf(a.bytes()) % kDirectBlockBytes, 0u);
  EXPECT_NE(AddressOf(a.bytes()), AddressOf(b.bytes()));
}

TEST(StagingBuffer, IsLentAgainAfterItWasGivenBack) {
  uintptr_t address = 0;
  {
    ASSERT_OK_AND_ASSIGN(const StagingBuffer first, StagingBuffer::Take());
    address = AddressOf(first.bytes());
  }
  ASSERT_OK_AND_ASSIGN(const StagingBuffer again, StagingBuffer::Take());
  EXPECT_EQ(AddressOf(again.bytes()), address);
}

}  // namespace
}  // namespace shardshift::ckpt
