// SPDX-License-Identifier: Apache-2.0
#include "tools/tensor_diff.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift {
namespace {

using ckpt::DType;

template <typename T>
std::span<const std::byte> Image(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
uint64_t Ulp(DType dtype, T a, T b) {
  return UlpDistance(dtype, reinterpret_cast<const std::byte*>(&a),
                     reinterpret_cast<const std::byte*>(&b));
}

TEST(UlpDistance, CountsStepsOfNextafter) {
  for (const float start : {-3e-45f, -0.5f, 1.0f, 65504.0f}) {
    float at = start;
    for (uint64_t steps = 0; steps < 8; ++steps) {
      EXPECT_EQ(Ulp(DType::kF32, start, at), steps);
      EXPECT_EQ(Ulp(DType::kF32, at, start), steps);
      at = std::nextafter(at, std::numeric_limits<float>::infinity());
    }
  }
}

TEST(UlpDistance, PassesZeroOnceAndReachesInfinity) {
  EXPECT_EQ(Ulp(DType::kF32, -0.0f, 0.0f), 0);
  EXPECT_EQ(Ulp(DType::kF64, -5e-324, 5e-324), 2);
  EXPECT_EQ(Ulp(DType::kF64, std::numeric_limits<double>::max(),
                std::numeric_limits<double>::infinity()),
            1);
}

// Counts by walking all bit patterns: x -> the number of distinct values of
// the dtype between the two.
TEST(UlpDistance, IsTheNumberOfValuesBetweenInEverySmallFloat) {
  for (const DType dtype : {DType::kF8E5M2, DType::kF8E4M3, DType::kF8E8M0,
                            DType::kU8, DType::kI8}) {
    std::vector<double> values;
    for (int bits = 0; bits < 256; ++bits) {
      const auto byte = static_cast<std::byte>(bits);
      const double value = ckpt::ToDouble(dtype, &byte);
      if (!std::isnan(value)) values.push_back(value);
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const auto place = [&values](double value) {
      return std::lower_bound(values.begin(), values.end(), value) -
             values.begin();
    };
    for (int a = 0; a < 256; ++a) {
      for (int b = 0; b < 256; ++b) {
        const auto byte_a = static_cast<std::byte>(a);
        const auto byte_b = static_cast<std::byte>(b);
        const double in_a = ckpt::ToDouble(dtype, &byte_a);
        const double in_b = ckpt::ToDouble(dtype, &byte_b);
        if (std::isnan(in_a) || std::isnan(in_b)) continue;
        EXPECT_EQ(UlpDistance(dtype, &byte_a, &byte_b),
                  std::abs(place(in_a) - place(in_b)))
            << ckpt::Name(dtype) << " " << a << " " << b;
      }
    }
  }
}

TEST(UlpDistance, SpansTheWholeRangeOfIntegers) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Ulp(DType::kI64, kMin, kMax), ~uint64_t{0});
  EXPECT_EQ(Ulp(DType::kU64, uint64_t{0}, ~uint64_t{0}), ~uint64_t{0});
  EXPECT_EQ(Ulp<int16_t>(DType::kI16, -300, 500), 800);
}

TEST(DiffElements, FindsCountMaximaAndTheFirst) {
  std::vector<float> a(1000);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
  std::vector<float> b = a;
  b[17] += 0.5f;
  b[600] -= 4;
  b[0] = -0.0f;
  const TensorDifference found = DiffElements(DType::kF32, Image(a), Image(b));
  EXPECT_EQ(found.num_differing, 3);
  EXPECT_EQ(found.first, 0);
  EXPECT_EQ(found.max_abs, 4);
  EXPECT_EQ(found.max_ulp, Ulp(DType::kF32, 17.0f, 17.5f));
  EXPECT_EQ(found.num_nan, 0);
}

TEST(DiffElements, TellsNanPayloadsApartAndLeavesThemOutOfTheMaxima) {
  const std::vector<uint32_t> a = {0x7fc00001, 0x7fc00001, 0x3f800000};
  const std::vector<uint32_t> b = {0x7fc00001, 0x7fc00002, 0x3f800001};
  const TensorDifference found = DiffElements(DType::kF32, Image(a), Image(b));
  EXPECT_EQ(found.num_differing, 2);
  EXPECT_EQ(found.num_nan, 1);
  EXPECT_EQ(found.first, 1);
  EXPECT_EQ(found.max_ulp, 1);
  EXPECT_EQ(found.max_abs, std::ldexp(1.0, -23));
}

TEST(DiffElements, KeepsIntegersApartThatOneDoubleStandsFor) {
  const std::vector<int64_t> a = {int64_t{1} << 60};
  const std::vector<int64_t> b = {(int64_t{1} << 60) + 1};
  const TensorDifference found = DiffElements(DType::kI64, Image(a), Image(b));
  EXPECT_EQ(found.max_abs, 1);
  EXPECT_EQ(found.max_ulp, 1);
}

TEST(DiffElements, CountsAComplexNumberOnce) {
  const std::vector<float> a = {1, 2, 3, 4};
  const std::vector<float> b = {1, 2, 5, -4};
  const TensorDifference found = DiffElements(DType::kC64, Image(a), Image(b));
  EXPECT_EQ(found.num_differing, 1);
  EXPECT_EQ(found.first, 1);
  EXPECT_EQ(found.max_abs, 8);
}

TEST(IndexAt, IsTheRowMajorIndex) {
  EXPECT_EQ(IndexAt({4, 5, 6}, (2 * 5 + 3) * 6 + 1), (ckpt::Shape{2, 3, 1}));
  EXPECT_EQ(IndexAt({}, 0), ckpt::Shape{});
}

}  // namespace
}  // namespace shardshift
