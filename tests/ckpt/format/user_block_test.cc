// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/user_block.h"

#include "ckpt/core/coding.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::HasSubstr;

UserBlock Block() {
  return {FileRole::kPart, 100'000, 5000, 300, 0x1234, {5, 6}};
}

TEST(UserBlock, DecodesToWhatWasEncoded) {
  const std::string bytes = EncodeUserBlock(Block());
  EXPECT_EQ(bytes.size(), 4096u);
  ASSERT_OK_AND_ASSIGN(const UserBlock decoded,
                       DecodeUserBlock(AsBytes(bytes)));
  EXPECT_EQ(decoded, Block());
}

TEST(UserBlock, RefusesEveryFlippedBit) {
  std::string bytes = EncodeUserBlock(Block());
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    const int flip = 1 << (i % 8);
    bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ flip);
    EXPECT_THAT(DecodeUserBlock(AsBytes(bytes)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("user block")));
    bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ flip);
  }
}

TEST(UserBlock, RefusesATableOutsideTheFile) {
  UserBlock block = Block();
  block.table_offset_bytes = 100'000 - 299;
  EXPECT_THAT(DecodeUserBlock(AsBytes(EncodeUserBlock(block))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("outside")));
  block.table_bytes = int64_t{1} << 62;
  EXPECT_THAT(DecodeUserBlock(AsBytes(EncodeUserBlock(block))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("more than")));
}

// Another byte of Block(), with the right checksum.
std::string BlockWith(size_t offset, char value) {
  std::string bytes = EncodeUserBlock(Block());
  bytes[offset] = value;
  Encoder checksum;
  checksum.PutU64(Checksum64(AsBytes(bytes).first(4088)));
  return bytes.replace(4088, 8, checksum.bytes());
}

TEST(UserBlock, SaysThatANewerVersionIsOne) {
  EXPECT_THAT(DecodeUserBlock(AsBytes(BlockWith(8, 2))),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("format version 2")));
}

TEST(UserBlock, RefusesAnythingBehindTheFields) {
  for (const size_t offset : {64, 2000, 4087}) {
    EXPECT_THAT(DecodeUserBlock(AsBytes(BlockWith(offset, 1))),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("zero")));
  }
}

}  // namespace
}  // namespace shardshift::ckpt
