// SPDX-License-Identifier: Apache-2.0
#include "kernels/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/rounding_constants.h"
#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

using Kernel = void (*Kernels::*)(const RoundArgs&);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Rounded(const Kernels& kernels, Kernel kernel, float x) {
  (kernels.*kernel)({.x = &x, .count = 1});
  return x;
}

// All positive finite numbers of a format with that many bits of mantissa and
// that lowest exponent, ascending, and the power of two behind the largest.
std::vector<double> NumbersOf(int mantissa_bits, int lowest_exponent,
                              int highest_exponent) {
  std::vector<double> numbers;
  const int count = 1 << mantissa_bits;
  for (int i = 0; i < count; ++i) {
    numbers.push_back(std::ldexp(i, lowest_exponent - mantissa_bits));
  }
  for (int e = lowest_exponent; e <= highest_exponent; ++e) {
    for (int i = 0; i < count; ++i) {
      numbers.push_back(std::ldexp(count + i, e - mantissa_bits));
    }
  }
  numbers.push_back(std::ldexp(1.0, highest_exponent + 1));
  return numbers;
}

void ExpectRoundsToNearestEven(const Kernels& kernels, Kernel kernel,
                               const std::vector<double>& numbers) {
  const size_t last = numbers.size() - 1;
  // Behind the largest number lies infinity.
  const auto value = [&](size_t i) {
    return i == last ? kInfinity : static_cast<float>(numbers[i]);
  };
  for (size_t i = 0; i < last; ++i) {
    const float below = value(i);
    const float above = value(i + 1);
    const auto middle =
        static_cast<float>(numbers[i] + (numbers[i + 1] - numbers[i]) / 2);
    for (const float sign : {1.0F, -1.0F}) {
      const auto round = [&](float x) {
        return Rounded(kernels, kernel, sign * x);
      };
      ASSERT_EQ(round(below), sign * below);
      ASSERT_EQ(std::signbit(round(below)), sign < 0);
      ASSERT_EQ(round(middle), sign * (i % 2 == 0 ? below : above)) << middle;
      ASSERT_EQ(round(std::nextafter(middle, 0.0F)), sign * below) << middle;
      ASSERT_EQ(round(std::nextafter(middle, kInfinity)), sign * above)
          << middle;
    }
  }
}

TEST(Rounding, GoesToTheNearestNumberAndOfTwoToTheEvenOne) {
  for (const Isa isa : {Isa::kScalar, DetectIsa()}) {
    const Kernels& kernels = KernelsFor(isa);
    ExpectRoundsToNearestEven(kernels, &Kernels::round_to_fp16,
                              NumbersOf(10, -14, 15));
    ExpectRoundsToNearestEven(kernels, &Kernels::round_to_bf16,
                              NumbersOf(7, -126, 127));
  }
}

TEST(Rounding, KeepsInfinitiesAndMakesOneNanOfAll) {
  for (const Isa isa : {Isa::kScalar, DetectIsa()}) {
    for (const Kernel kernel :
         {&Kernels::round_to_fp16, &Kernels::round_to_bf16}) {
      const Kernels& kernels = KernelsFor(isa);
      EXPECT_EQ(Rounded(kernels, kernel, kInfinity), kInfinity);
      EXPECT_EQ(Rounded(kernels, kernel, -kInfinity), -kInfinity);
      for (const uint32_t bits :
           {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU}) {
        const float nan = Rounded(kernels, kernel, std::bit_cast<float>(bits));
        EXPECT_EQ(std::bit_cast<uint32_t>(nan), kNanBits);
      }
    }
  }
}

TEST(Rounding, HasTheSameBitsOnAllIsas) {
  // Every 65521st float, a prime, of both signs.
  std::vector<float> all;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 65521) {
    all.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const Kernel kernel :
       {&Kernels::round_to_fp16, &Kernels::round_to_bf16}) {
    ExpectSameBitsOnAllIsas([&](const Kernels& kernels) {
      std::vector<float> x = all;
      (kernels.*kernel)({.x = x.data(), .count = std::ssize(x)});
      return x;
    });
  }
}

}  // namespace
}  // namespace shardshift::kernels
