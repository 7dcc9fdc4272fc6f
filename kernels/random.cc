// SPDX-License-Identifier: Apache-2.0
#include "kernels/random.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <numbers>

#include "kernels/math.h"

namespace shardshift::kernels {
namespace {

constexpr int kPhiloxRounds = 10;
constexpr uint64_t kPhiloxMultiplier0 = 0xD2511F53;
constexpr uint64_t kPhiloxMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9;
constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85;

constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
constexpr int kFeistelRounds = 6;

// The finalizer of SplitMix64 (Steele et al. 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// FNV-1a, 64 bits.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  return hash;
}

struct BitPair {
  uint64_t first;
  uint64_t second;
};

BitPair RandomPair(uint64_t key, uint64_t index) {
  const std::array<uint32_t, 4> block = Philox4x32(
      {LowWord(index), HighWord(index), 0, 0}, {LowWord(key), HighWord(key)});
  return {block[0] | uint64_t{block[1]} << 32,
          block[2] | uint64_t{block[3]} << 32};
}

double ToUnitInterval(uint64_t bits) {
  return static_cast<double>((bits >> 11) + 1) * 0x1p-53;
}

uint64_t Feistel(uint64_t key, uint64_t value, int half_bits) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (int round = 1; round <= kFeistelRounds; ++round) {
    const uint64_t round_key = Mix(key + round * kGoldenRatio);
    const uint64_t next = left ^ (Mix(right + round_key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter,
                                   const std::array<uint32_t, 2>& key) {
  std::array<uint32_t, 4> c = counter;
  std::array<uint32_t, 2> k = key;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = kPhiloxMultiplier0 * c[0];
    const uint64_t product1 = kPhiloxMultiplier1 * c[2];
    c = {HighWord(product1) ^ c[1] ^ k[0], LowWord(product1),
         HighWord(product0) ^ c[3] ^ k[1], LowWord(product0)};
    k = {k[0] + kPhiloxWeyl0, k[1] + kPhiloxWeyl1};
  }
  return c;
}

uint64_t RandomKey(uint64_t seed, std::string_view name) {
  return Mix(HashName(name) + Mix(seed + kGoldenRatio));
}

uint64_t RandomBits(uint64_t key, uint64_t index) {
  return RandomPair(key, index).first;
}

double Uniform(uint64_t key, uint64_t index) {
  return ToUnitInterval(RandomBits(key, index));
}

float Normal(uint64_t key, uint64_t index) {
  const BitPair bits = RandomPair(key, index);
  const double radius = std::sqrt(-2.0 * Log(ToUnitInterval(bits.first)));
  const double angle = 2.0 * std::numbers::pi * ToUnitInterval(bits.second);
  return static_cast<float>(radius * SinCos(angle).cos);
}

uint64_t Permute(uint64_t key, uint64_t index, uint64_t n) {
  assert(n > 0 && n <= uint64_t{1} << 62 && index < n);
  const int half_bits = (static_cast<int>(std::bit_width(n - 1)) + 1) / 2;
  // The network permutes [0, 4^half_bits), less than 4n values; following it
  // from an index below n until it is below n again is a permutation of [0,n).
  do {
    index = Feistel(key, index, half_bits);
  } while (index >= n);
  return index;
}

}  // namespace shardshift::kernels
