// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/block_sums.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace shardshift::ckpt {
namespace {

using uint128 = unsigned __int128;

constexpr int kLimbBits = 24;
constexpr uint32_t kLimbMask = (uint32_t{1} << kLimbBits) - 1;

// [lane][limb, low first][word]: coefficients in halves, so that a product
// with a 32-bit word has 56 bits, and 256 products add up in 64.
using Limbs =
    std::array<std::array<std::array<uint32_t, kSumBlockWords>, 2>, 2>;

constexpr Limbs MakeLimbs() {
  Limbs limbs = {};
  for (int lane = 0; lane < 2; ++lane) {
    for (int64_t word = 0; word < kSumBlockWords; ++word) {
      const uint64_t coefficient = WordCoefficient(lane, word);
      limbs[lane][0][word] = static_cast<uint32_t>(coefficient) & kLimbMask;
      limbs[lane][1][word] = static_cast<uint32_t>(coefficient >> kLimbBits);
    }
  }
  return limbs;
}

alignas(32) constexpr Limbs kLimbs = MakeLimbs();

void AddWord(int64_t word, uint32_t value, BlockSums& sums) {
  for (int lane = 0; lane < 2; ++lane) {
    const uint64_t coefficient =
        kLimbs[lane][0][word] | uint64_t{kLimbs[lane][1][word]} << kLimbBits;
    sums[lane] += uint128{coefficient} * value;
  }
}

// Adds bytes of one word, at `offset_bytes` of the block.
void AddPartOfWord(int64_t offset_bytes, std::span<const std::byte> bytes,
                   BlockSums& sums) {
  if (bytes.empty()) return;
  std::array<std::byte, kWordBytes> word = {};
  std::memcpy(word.data() + offset_bytes % kWordBytes, bytes.data(),
              bytes.size());
  uint32_t value;
  std::memcpy(&value, word.data(), sizeof value);
  AddWord(offset_bytes / kWordBytes, value, sums);
}

// The sum of the four elements of an accumulator. REQUIRES: each below 2^63.
__attribute__((target("avx2"))) uint128 Total(__m256i sums) {
  const __m128i pairs = _mm_add_epi64(_mm256_castsi256_si128(sums),
                                      _mm256_extracti128_si256(sums, 1));
  return uint128{static_cast<uint64_t>(_mm_cvtsi128_si64(pairs))} +
         static_cast<uint64_t>(_mm_extract_epi64(pairs, 1));
}

BlockSums SumWords(int64_t first, const std::byte* words, int64_t num_words) {
  constexpr int64_t kWorthAvx2 = 8;
  return num_words >= kWorthAvx2 && __builtin_cpu_supports("avx2")
             ? SumWordsAvx2(first, words, num_words)
             : SumWordsScalar(first, words, num_words);
}

}  // namespace

BlockSums SumWordsScalar(int64_t first, const std::byte* words,
                         int64_t num_words) {
  BlockSums sums = {};
  for (int64_t i = 0; i < num_words; ++i) {
    uint32_t value;
    std::memcpy(&value, words + i * kWordBytes, sizeof value);
    AddWord(first + i, value, sums);
  }
  return sums;
}

// Eight words a turn: the even ones are multiplied where they are, the odd
// ones shifted down. An element of an accumulator takes two products a turn,
// 128 in all.
__attribute__((target("avx2"))) BlockSums SumWordsAvx2(int64_t first,
                                                       const std::byte* words,
                                                       int64_t num_words) {
  __m256i sums[2][2] = {};
  int64_t i = 0;
  for (; i + 8 <= num_words; i += 8) {
    const __m256i even = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(words + i * kWordBytes));
    const __m256i odd = _mm256_srli_epi64(even, 32);
    for (int lane = 0; lane < 2; ++lane) {
      for (int limb = 0; limb < 2; ++limb) {
        const __m256i coefficient = _mm256_loadu_si256(
            reinterpret_cast<const __m256i*>(&kLimbs[lane][limb][first + i]));
        const __m256i products = _mm256_add_epi64(
            _mm256_mul_epu32(even, coefficient),
            _mm256_mul_epu32(odd, _mm256_srli_epi64(coefficient, 32)));
        sums[lane][limb] = _mm256_add_epi64(sums[lane][limb], products);
      }
    }
  }
  BlockSums total =
      SumWordsScalar(first + i, words + i * kWordBytes, num_words - i);
  for (int lane = 0; lane < 2; ++lane) {
    total[lane] += Total(sums[lane][0]) + (Total(sums[lane][1]) << kLimbBits);
  }
  return total;
}

BlockSums SumBlock(int64_t offset_bytes, std::span<const std::byte> bytes) {
  const auto end = offset_bytes + static_cast<int64_t>(bytes.size());
  const int64_t begin_words = (offset_bytes + kWordBytes - 1) / kWordBytes;
  const int64_t end_words = end / kWordBytes;
  BlockSums sums = {};
  if (begin_words > end_words) {
    AddPartOfWord(offset_bytes, bytes, sums);
    return sums;
  }
  const auto head =
      static_cast<size_t>(begin_words * kWordBytes - offset_bytes);
  const auto tail = static_cast<size_t>(end - end_words * kWordBytes);
  sums = SumWords(begin_words, bytes.data() + head, end_words - begin_words);
  AddPartOfWord(offset_bytes, bytes.first(head), sums);
  AddPartOfWord(end_words * kWordBytes, bytes.last(tail), sums);
  return sums;
}

}  // namespace shardshift::ckpt
