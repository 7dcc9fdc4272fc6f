// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr DType kSmall[] = {DType::kF16, DType::kBF16, DType::kF8E5M2,
                            DType::kF8E4M3};

template <typename T>
uint64_t Converted(DType from, T value, DType to) {
  uint64_t bits = 0;
  ConvertValues(from, reinterpret_cast<const std::byte*>(&value), to,
                reinterpret_cast<std::byte*>(&bits), 1);
  return bits;
}
uint64_t Rounded(double value, DType to) {
  return Converted(DType::kF64, value, to);
}
double ValueOf(DType dtype, uint64_t bits) {
  return ToDouble(dtype, reinterpret_cast<const std::byte*>(&bits));
}
uint64_t SignBit(DType dtype) {
  return uint64_t{1} << (8 * ItemSize(dtype) - 1);
}

TEST(ConvertValues, TakesEveryValueToWiderAndBack) {
  for (const DType dtype : kSmall) {
    for (uint64_t bits = 0; bits < 2 * SignBit(dtype); ++bits) {
      const double value = ValueOf(dtype, bits);
      if (std::isnan(value)) continue;
      for (const DType wide : {DType::kF32, DType::kF64}) {
        const uint64_t widened = Converted(dtype, bits, wide);
        ASSERT_EQ(ValueOf(wide, widened), value);
        ASSERT_EQ(Converted(wide, widened, dtype), bits) << Name(dtype);
      }
    }
  }
}

// Between any two neighbours of a dtype lies the border where rounding turns.
TEST(ConvertValues, RoundsToTheNearestAndTiesToEven) {
  for (const DType dtype : kSmall) {
    for (uint64_t low = 0; low + 1 < SignBit(dtype); ++low) {
      const double a = ValueOf(dtype, low);
      const double b = ValueOf(dtype, low + 1);
      if (!std::isfinite(a) || !std::isfinite(b)) break;
      const double middle = a + (b - a) / 2;
      const uint64_t even = low % 2 == 0 ? low : low + 1;
      for (const uint64_t sign : {uint64_t{0}, SignBit(dtype)}) {
        const double s = sign == 0 ? 1 : -1;
        ASSERT_EQ(Rounded(s * middle, dtype), sign | even) << middle;
        ASSERT_EQ(Rounded(s * std::nextafter(middle, a), dtype), sign | low);
        ASSERT_EQ(Rounded(s * std::nextafter(middle, b), dtype),
                  sign | (low + 1));
      }
    }
  }
}

TEST(ConvertValues, OverflowsWhereTheNextValueWouldBeNearer) {
  struct Case {
    DType dtype;
    double largest;
    double tie;  // half way to what would follow
    uint64_t overflow;
  };
  for (const Case& c : {Case{DType::kF16, 65504, 65520, 0x7c00},
                        Case{DType::kF8E5M2, 57344, 61440, 0x7c},
                        Case{DType::kF8E4M3, 448, 464, 0x7f}}) {
    const uint64_t largest = Rounded(c.largest, c.dtype);
    EXPECT_EQ(ValueOf(c.dtype, largest), c.largest);
    EXPECT_EQ(Rounded(std::nextafter(c.tie, 0), c.dtype), largest);
    EXPECT_EQ(Rounded(std::nextafter(c.tie, 1e9), c.dtype), c.overflow);
    EXPECT_EQ(Rounded(1e300, c.dtype), c.overflow);
    EXPECT_EQ(Rounded(-std::numeric_limits<double>::infinity(), c.dtype),
              c.overflow | SignBit(c.dtype));
    // The largest has an even mantissa in E4M3 alone.
    const bool is_even = largest % 2 == 0;
    EXPECT_EQ(Rounded(c.tie, c.dtype), is_even ? largest : c.overflow);
  }
  EXPECT_EQ(Rounded(3.5e38, DType::kBF16), 0x7f80u);
  EXPECT_EQ(Rounded(1e39, DType::kF32), 0x7f800000u);
}

TEST(ConvertValues, KeepsTheSignOfZeroAndOfNaN) {
  for (const DType dtype : kSmall) {
    EXPECT_EQ(Rounded(-0.0, dtype), SignBit(dtype));
    const uint64_t nan = Converted(DType::kF32, uint32_t{0x7f800001}, dtype);
    EXPECT_TRUE(std::isnan(ValueOf(dtype, nan))) << Name(dtype);
    EXPECT_EQ(Converted(DType::kF32, uint32_t{0xff800001}, dtype),
              nan | SignBit(dtype));
    EXPECT_EQ(Converted(dtype, nan | SignBit(dtype), DType::kF32), 0xffc00000u);
  }
}

// The integer version of the rule against the one by doubles.
TEST(ConvertValues, RoundsToBF16AsFromDoubles) {
  std::mt19937 random(4);
  for (int i = 0; i < 1000000; ++i) {
    const auto x = static_cast<uint32_t>(random());
    const uint32_t bits = i < 200000 ? (x << 14) | (i & 3) : x;
    const auto value = std::bit_cast<float>(bits);
    ASSERT_EQ(Converted(DType::kF32, bits, DType::kBF16),
              Rounded(std::isnan(value) ? std::copysign(NAN, value) : value,
                      DType::kBF16))
        << bits;
  }
}

TEST(ConvertValues, CopiesTheBitsOfEqualDTypes) {
  EXPECT_EQ(Converted(DType::kF32, uint32_t{0x7f800001}, DType::kF32),
            0x7f800001u);
  EXPECT_EQ(Converted(DType::kI64, int64_t{-5}, DType::kI64),
            static_cast<uint64_t>(-5));
}

TEST(CheckConversion, NamesWhatItRefuses) {
  EXPECT_OK(CheckConversion(DType::kI8, DType::kI8));
  EXPECT_OK(CheckConversion(DType::kF8E4M3, DType::kF64));
  EXPECT_THAT(CheckConversion(DType::kF32, DType::kI32),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("F32 to I32"))));
}

}  // namespace
}  // namespace shardshift::ckpt
