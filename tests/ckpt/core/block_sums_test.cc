// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/block_sums.h"

#include <random>
#include <set>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

// From the words' definition, one byte at a time.
BlockSums PlainSums(int64_t offset_bytes, std::span<const std::byte> bytes) {
  BlockSums sums = {};
  for (int lane = 0; lane < 2; ++lane) {
    int64_t position = offset_bytes;
    for (const std::byte b : bytes) {
      const auto value = std::to_integer<uint64_t>(b) << (8 * (position % 4));
      sums[lane] +=
          static_cast<unsigned __int128>(WordCoefficient(lane, position / 4)) *
          value;
      ++position;
    }
  }
  return sums;
}

std::vector<std::byte> RandomBytes(int64_t size, std::mt19937& random) {
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// The generator's published first outputs.
TEST(SplitMix64, GivesThePublishedNumbers) {
  EXPECT_EQ(SplitMix64(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(SplitMix64(0, 1), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(SplitMix64(0, 2), 0x06c45d188009454fu);
}

// So that a change within a word, and a swap of two words of a block, always
// show.
TEST(WordCoefficient, IsNeverZeroAndDiffersFromWordToWord) {
  for (int lane = 0; lane < 2; ++lane) {
    std::set<uint64_t> seen = {0};
    for (int64_t word = 0; word < kSumBlockWords; ++word) {
      const uint64_t coefficient = WordCoefficient(lane, word);
      EXPECT_LT(coefficient, uint64_t{1} << 48);
      EXPECT_TRUE(seen.insert(coefficient).second) << lane << " " << word;
    }
  }
}

TEST(SumBlock, IsThePlainSumAtAnyOffsetAndSize) {
  std::mt19937 random(20250101);
  const std::vector<std::byte> bytes = RandomBytes(kSumBlockBytes, random);
  for (int64_t begin = 0; begin < 40; ++begin) {
    for (int64_t size = 0; size < 80; ++size) {
      const auto piece = std::span(bytes).subspan(begin, size);
      EXPECT_TRUE(SumBlock(begin, piece) == PlainSums(begin, piece))
          << begin << " " << size;
      const int64_t late = kSumBlockBytes - begin - size;
      EXPECT_TRUE(SumBlock(late, piece) == PlainSums(late, piece))
          << late << " " << size;
    }
  }
}

TEST(SumWords, AreTheSameInBothForms) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "the CPU has no AVX2";
  std::mt19937 random(7);
  const std::vector<std::byte> bytes = RandomBytes(kSumBlockBytes + 3, random);
  for (int64_t num_words = 0; num_words <= kSumBlockWords; ++num_words) {
    const int64_t first =
        static_cast<int64_t>(random()) % (kSumBlockWords - num_words + 1);
    const std::byte* words = bytes.data() + num_words % 4;  // misaligned
    EXPECT_TRUE(SumWordsAvx2(first, words, num_words) ==
                SumWordsScalar(first, words, num_words))
        << first << " " << num_words;
  }
}

TEST(SumBlock, HoldsAFullBlockOfTheLargestWords) {
  const std::vector<std::byte> bytes(kSumBlockBytes, std::byte{0xff});
  EXPECT_TRUE(SumBlock(0, bytes) == PlainSums(0, bytes));
}

}  // namespace
}  // namespace shardshift::ckpt
