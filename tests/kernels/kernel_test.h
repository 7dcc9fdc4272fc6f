// What the kernel tests share: data, bitwise comparison, and the loop over the
// instruction sets of this processor.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_KERNELS_KERNEL_TEST_H_
#define SHARDSHIFT_TESTS_KERNELS_KERNEL_TEST_H_

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random.h"

namespace shardshift::kernels {

// Sizes around the vector widths and the tiles of the product.
inline const std::vector<int64_t> kEdgeSizes = {1,  5,  7,  8,  9,  15, 16,
                                                17, 24, 31, 32, 33, 47, 100};

// `count` standard normals from the stream called `name`.
inline std::vector<float> Normals(std::string_view name, int64_t count) {
  const uint64_t key = RandomKey(1, name);
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = Normal(key, i);
  return values;
}

inline std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values)
    bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// The vector instruction sets this processor has; may be empty.
inline std::vector<Isa> VectorIsas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (IsaSupported(isa)) isas.push_back(isa);
  }
  return isas;
}

// Runs `outputs`, a function from a table to a vector of floats, with the
// scalar table and with each vector one: all must give the same bits.
template <typename Outputs>
void ExpectSameBitsOnAllIsas(Outputs outputs) {
  const std::vector<uint32_t> expected =
      Bits(outputs(KernelsFor(Isa::kScalar)));
  for (const Isa isa : VectorIsas()) {
    EXPECT_EQ(Bits(outputs(KernelsFor(isa))), expected) << IsaName(isa);
  }
}

inline void Append(const std::vector<float>& from, std::vector<float>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_TESTS_KERNELS_KERNEL_TEST_H_
