// Counter-based random numbers: every value is a pure function of (key, index),
// so no layout, order or restart can change it. No state, no streams.
// Source: Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy
// as 1, 2, 3".
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_RANDOM_H_
#define SHARDSHIFT_KERNELS_RANDOM_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace shardshift::kernels {

// Halves of a number, for counters and keys of the generator.
constexpr uint32_t LowWord(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t HighWord(uint64_t x) {
  return static_cast<uint32_t>(x >> 32);
}

// One block of the generator.
std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter,
                                   const std::array<uint32_t, 2>& key);

// A key for the numbers called `name` of a run. Different names or seeds give
// unrelated keys.
uint64_t RandomKey(uint64_t seed, std::string_view name);

// 64 random bits.
uint64_t RandomBits(uint64_t key, uint64_t index);

// Uniform in (0,1], on a grid of 2^-53.
double Uniform(uint64_t key, uint64_t index);

// Standard normal, by the Box-Muller transform in double with math.h: the same
// bits on every machine.
float Normal(uint64_t key, uint64_t index);

// A keyed permutation of [0,n): distinct indices give distinct results. A
// Feistel network over the next power of four, walked until it falls below n.
// REQUIRES: 0 < n <= 2^62, index < n.
uint64_t Permute(uint64_t key, uint64_t index, uint64_t n);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_RANDOM_H_
