// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/checksum.h"

#include <random>

#include "ckpt/core/coding.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

std::vector<std::byte> RandomBytes(size_t size) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Values of the published algorithm, so that files stay readable elsewhere.
TEST(Checksum64, IsXxh3) {
  EXPECT_EQ(Checksum64({}), 0x2d06800538d394c2u);
  Digest128Stream stream;
  EXPECT_EQ(ToString(stream.Digest()), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest128Stream, DoesNotDependOnThePieces) {
  const std::vector<std::byte> bytes = RandomBytes(100'000);
  Digest128Stream whole;
  whole.Update(bytes);
  Digest128Stream pieces;
  for (size_t begin = 0; begin < bytes.size(); begin += 777) {
    const size_t size = std::min<size_t>(777, bytes.size() - begin);
    pieces.Update(std::span(bytes).subspan(begin, size));
  }
  EXPECT_EQ(whole.Digest(), pieces.Digest());
}

TEST(Checksum64Stream, DoesNotDependOnThePieces) {
  const std::vector<std::byte> bytes = RandomBytes(100'000);
  Checksum64Stream pieces;
  for (size_t begin = 0; begin < bytes.size(); begin += 777) {
    const size_t size = std::min<size_t>(777, bytes.size() - begin);
    pieces.Update(std::span(bytes).subspan(begin, size));
  }
  EXPECT_EQ(pieces.Digest(), Checksum64(bytes));
}

TEST(NumBlocks, CountsAShortLastBlock) {
  EXPECT_EQ(NumBlocks(0), 0);
  EXPECT_EQ(NumBlocks(kBlockBytes), 1);
  EXPECT_EQ(NumBlocks(kBlockBytes + 1), 2);
}

}  // namespace
}  // namespace shardshift::ckpt
