// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/dtype.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

template <typename T>
double ValueOf(DType dtype, T bits) {
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, &bits, sizeof(T));
  return ToDouble(dtype, bytes);
}

template <typename T>
std::string TextOf(DType dtype, T value) {
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  return FormatValue(dtype, bytes);
}

TEST(DType, NamesParseBackToThemselves) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    ASSERT_OK_AND_ASSIGN(const DType parsed, ParseDType(Name(dtype)));
    EXPECT_EQ(parsed, dtype);
    EXPECT_EQ(DTypeFromNumber(static_cast<uint8_t>(i)), dtype);
  }
  EXPECT_EQ(DTypeFromNumber(kNumDTypes), std::nullopt);
  EXPECT_THAT(ParseDType("F4"), StatusIs(absl::StatusCode::kInvalidArgument,
                                         ::testing::HasSubstr("F4")));
}

TEST(ToDouble, KnowsTheCornersOfSmallFloats) {
  EXPECT_EQ(ValueOf<uint16_t>(DType::kBF16, 0x3f80), 1.0);
  EXPECT_EQ(ValueOf<uint16_t>(DType::kBF16, 0xc049), -3.140625);
  EXPECT_EQ(ValueOf<uint16_t>(DType::kF16, 0x3c00), 1.0);
  EXPECT_EQ(ValueOf<uint16_t>(DType::kF16, 0x7bff), 65504.0);
  EXPECT_EQ(ValueOf<uint16_t>(DType::kF16, 0x0001), std::ldexp(1.0, -24));
  EXPECT_EQ(ValueOf<uint16_t>(DType::kF16, 0xfc00),
            -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(ValueOf<uint16_t>(DType::kF16, 0x7e00)));
  EXPECT_EQ(ValueOf<uint8_t>(DType::kF8E4M3, 0x7e), 448.0);
  EXPECT_EQ(ValueOf<uint8_t>(DType::kF8E4M3, 0x81), -std::ldexp(1.0, -9));
  EXPECT_TRUE(std::isnan(ValueOf<uint8_t>(DType::kF8E4M3, 0xff)));
  EXPECT_EQ(ValueOf<uint8_t>(DType::kF8E5M2, 0x7b), 57344.0);
  EXPECT_TRUE(std::isinf(ValueOf<uint8_t>(DType::kF8E5M2, 0x7c)));
  EXPECT_EQ(ValueOf<uint8_t>(DType::kF8E8M0, 127), 1.0);
  EXPECT_TRUE(std::isnan(ValueOf<uint8_t>(DType::kF8E8M0, 255)));
}

TEST(FormatValue, ReadsBackAsTheSameValue) {
  EXPECT_EQ(TextOf(DType::kF32, 0.1f), "0.1");
  EXPECT_EQ(TextOf(DType::kF64, 0.1), "0.1");
  EXPECT_EQ(TextOf(DType::kF32, -std::numeric_limits<float>::infinity()),
            "-inf");
  EXPECT_EQ(TextOf(DType::kI64, std::numeric_limits<int64_t>::min()),
            "-9223372036854775808");
  EXPECT_EQ(TextOf(DType::kU64, ~uint64_t{0}), "18446744073709551615");
  EXPECT_EQ(TextOf(DType::kI32, int32_t{-123456789}), "-123456789");
  EXPECT_EQ(TextOf(DType::kU8, uint8_t{255}), "255");
  EXPECT_EQ(TextOf(DType::kBool, uint8_t{1}), "true");
  const float complex[2] = {1.5f, -2.0f};
  EXPECT_EQ(
      FormatValue(DType::kC64, reinterpret_cast<const std::byte*>(complex)),
      "1.5-2i");
}

}  // namespace
}  // namespace shardshift::ckpt
