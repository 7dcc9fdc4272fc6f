// The inner sums of a content fingerprint, over one block of 512 words.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_BLOCK_SUMS_H_
#define SHARDSHIFT_CKPT_CORE_BLOCK_SUMS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardshift::ckpt {

inline constexpr int64_t kWordBytes = 4;
inline constexpr int64_t kSumBlockWords = 512;
inline constexpr int64_t kSumBlockBytes = kSumBlockWords * kWordBytes;

// Output number `index` of the generator splitmix64 with `seed`. Source:
// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
constexpr uint64_t SplitMix64(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// The coefficient of word `word` of a block, for sum `lane`. Below 2^48.
constexpr uint64_t WordCoefficient(int64_t lane, int64_t word) {
  return SplitMix64(0, static_cast<uint64_t>(kSumBlockWords * lane + word)) >>
         16;
}

// For each lane, the exact sum over words of coefficient times value. A block
// of full words stays below 2^89.
using BlockSums = std::array<unsigned __int128, 2>;

// The sums of the bytes at `offset_bytes` of a block, whose other bytes are
// taken as zero. REQUIRES: they lie in the block.
BlockSums SumBlock(int64_t offset_bytes, std::span<const std::byte> bytes);

// The sums of `num_words` whole words from word `first` of a block on, in two
// forms that agree. REQUIRES: they lie in the block; for the second, AVX2.
BlockSums SumWordsScalar(int64_t first, const std::byte* words,
                         int64_t num_words);
BlockSums SumWordsAvx2(int64_t first, const std::byte* words,
                       int64_t num_words);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_BLOCK_SUMS_H_
