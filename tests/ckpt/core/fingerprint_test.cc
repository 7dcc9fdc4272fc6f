// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/block_sums.h"
#include "ckpt/core/box_copy.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using uint128 = unsigned __int128;
using Bytes = std::vector<std::byte>;

const Digest128 kKey = FingerprintKey("layers.0.weight", "master", DType::kF32);

// The definition, one word at a time.
Fingerprint PlainFingerprint(const Digest128& key, Bytes image) {
  image.resize((image.size() + 3) / 4 * 4);
  uint64_t sum[2] = {};
  for (size_t w = 0; w < image.size() / 4; ++w) {
    uint32_t value;
    std::memcpy(&value, &image[4 * w], 4);
    for (size_t lane = 0; lane < 2; ++lane) {
      const uint64_t seed = lane == 0 ? key.low : key.high;
      const uint128 scale = 1 + (SplitMix64(seed, w / 512) >> 4);
      const uint64_t coefficient = SplitMix64(0, 512 * lane + w % 512) >> 16;
      const uint128 term = scale * coefficient % kFingerprintModulus * value;
      sum[lane] =
          static_cast<uint64_t>((sum[lane] + term) % kFingerprintModulus);
    }
  }
  return {sum[0], sum[1]};
}

Fingerprint Of(const Digest128& key, const Bytes& image) {
  RunFingerprint fingerprint(key);
  fingerprint.Add(0, image);
  return fingerprint.fingerprint();
}

template <typename T>
Fingerprint Of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return Of(kKey, Bytes(bytes.begin(), bytes.end()));
}

Bytes RandomBytes(int64_t size, std::mt19937& random) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

int64_t Below(int64_t end, std::mt19937& random) {
  return static_cast<int64_t>(random()) % end;
}

// 0-d to 5-d. Small extents with 0 and 1 among them, and at times one that
// makes rows longer than a block.
Shape RandomShape(std::mt19937& random) {
  Shape shape;
  for (int64_t d = Below(6, random); d > 0; --d) {
    shape.push_back(Below(20, random) == 0 ? 0 : 1 + Below(5, random));
  }
  if (!shape.empty() && Below(3, random) == 0) {
    shape[Below(static_cast<int64_t>(shape.size()), random)] =
        Below(1500, random);
  }
  return shape;
}

// Cuts `box` at random, empty pieces included.
void Cut(const Box& box, int depth, std::mt19937& random,
         std::vector<Box>& pieces) {
  if (depth == 0 || box.ndim() == 0) {
    pieces.push_back(box);
    return;
  }
  const int64_t d = Below(box.ndim(), random);
  const int64_t at = Below(box.extent[d] + 1, random);
  Box first = box;
  first.extent[d] = at;
  Box second = box;
  second.start[d] += at;
  second.extent[d] -= at;
  Cut(first, depth - 1, random, pieces);
  Cut(second, depth - 1, random, pieces);
}

// The fingerprint of `box` of a tensor with dense `image`, from random pieces.
Fingerprint OfBox(const Digest128& key, DType dtype, const Shape& shape,
                  const Bytes& image, const Box& box, std::mt19937& random) {
  Bytes dense(NumElements(box) * ItemSize(dtype));
  CopyBox(image.data(), WholeBox(shape), dense.data(), box, box,
          ItemSize(dtype));
  BoxFingerprint fingerprint(key, dtype, shape, box);
  const int64_t longest = 1 + Below(5000, random);
  for (std::span<const std::byte> rest(dense); !rest.empty();) {
    const auto size =
        std::min(rest.size(), static_cast<size_t>(Below(longest + 1, random)));
    fingerprint.Update(rest.first(size));
    rest = rest.subspan(size);
  }
  return fingerprint.fingerprint();
}

TEST(BoxFingerprint, AddsUpOverEveryPartition) {
  std::mt19937 random(20250102);
  for (int round = 0; round < 40 * kNumDTypes; ++round) {
    const auto dtype = static_cast<DType>(round % kNumDTypes);
    const Shape shape = RandomShape(random);
    SCOPED_TRACE(absl::StrCat(Name(dtype), ToString(shape)));
    const Digest128 key = FingerprintKey(absl::StrCat(round), "m", dtype);
    const Bytes image =
        RandomBytes(NumElements(shape) * ItemSize(dtype), random);
    std::vector<Box> boxes;
    Cut(WholeBox(shape), static_cast<int>(Below(5, random)), random, boxes);
    std::shuffle(boxes.begin(), boxes.end(), random);
    Fingerprint sum;
    for (const Box& box : boxes) {
      sum += OfBox(key, dtype, shape, image, box, random);
    }
    EXPECT_EQ(ToString(sum), ToString(PlainFingerprint(key, image)));
  }
}

TEST(BoxFingerprint, AddsUpOverSingleElementColumns) {
  const Shape shape = {300, 3};
  std::mt19937 random(3);
  const Bytes image = RandomBytes(300 * 3 * 2, random);
  Fingerprint sum;
  for (int64_t column = 0; column < 3; ++column) {
    sum += OfBox(kKey, DType::kBF16, shape, image, {{0, column}, {300, 1}},
                 random);
  }
  EXPECT_EQ(sum, PlainFingerprint(kKey, image));
}

// Far blocks, as only a tensor of terabytes has them.
TEST(RunFingerprint, CountsFromTheOffset) {
  const int64_t block = int64_t{1} << 40;
  const Bytes image = {std::byte{1}};
  RunFingerprint fingerprint(kKey);
  fingerprint.Add(block * kSumBlockBytes, image);
  const uint128 scale = 1 + (SplitMix64(kKey.low, block) >> 4);
  EXPECT_EQ(fingerprint.fingerprint().low,
            static_cast<uint64_t>(scale * (SplitMix64(0, 0) >> 16) %
                                  kFingerprintModulus));
}

TEST(RunFingerprint, HoldsTheLargestValues) {
  const Bytes image(3 * kSumBlockBytes, std::byte{0xff});
  EXPECT_EQ(Of(kKey, image), PlainFingerprint(kKey, image));
}

TEST(Fingerprint, IsAnotherForEachFlippedBit) {
  std::mt19937 random(4);
  Bytes image = RandomBytes(2 * kSumBlockBytes + 10, random);
  std::set<std::string> seen = {ToString(Of(kKey, image))};
  for (std::byte& b : image) {
    for (int bit = 0; bit < 8; ++bit) {
      const std::byte mask = std::byte{1} << bit;
      b ^= mask;
      EXPECT_TRUE(seen.insert(ToString(Of(kKey, image))).second);
      b ^= mask;
    }
  }
}

TEST(Fingerprint, IsAnotherForEachPairOfSwappedElements) {
  std::vector<float> values(3 * kSumBlockWords);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i + 1);
  const Fingerprint base = Of(values);
  std::set<std::string> seen = {ToString(base)};
  for (size_t i = 0; i < values.size(); i += 31) {
    for (size_t j = i + 1; j < values.size(); j += 17) {
      std::swap(values[i], values[j]);
      EXPECT_TRUE(seen.insert(ToString(Of(values))).second) << i << " " << j;
      std::swap(values[i], values[j]);
    }
  }
}

TEST(Fingerprint, SeesBlocksSwapped) {
  std::mt19937 random(5);
  Bytes image = RandomBytes(2 * kSumBlockBytes, random);
  const Fingerprint base = Of(kKey, image);
  std::rotate(image.begin(), image.begin() + kSumBlockBytes, image.end());
  EXPECT_NE(Of(kKey, image), base);
}

TEST(Fingerprint, SeesAShiftByOneElement) {
  EXPECT_NE(Of<float>({1, 1, 1, 0}), Of<float>({0, 1, 1, 1}));
  EXPECT_NE(Of<uint16_t>({1, 1, 1, 0}), Of<uint16_t>({0, 1, 1, 1}));
  EXPECT_NE(Of<uint8_t>({1, 1, 1, 0}), Of<uint8_t>({0, 1, 1, 1}));
}

TEST(Fingerprint, TellsZeroFromMinusZero) {
  EXPECT_NE(Of<float>({0.0f, 1}), Of<float>({-0.0f, 1}));
  EXPECT_NE(Of<float>({0.0f, -0.0f}), Of<float>({-0.0f, 0.0f}));
}

TEST(Fingerprint, TellsOneNanFromAnother) {
  const std::set<std::string> seen = {ToString(Of<uint32_t>({0x7fc00000})),
                                      ToString(Of<uint32_t>({0xffc00000})),
                                      ToString(Of<uint32_t>({0x7fc00001})),
                                      ToString(Of<uint32_t>({0x7f800001}))};
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Fingerprint, DependsOnNameRoleAndDtype) {
  const Bytes image(100, std::byte{7});
  std::set<std::string> seen;
  for (const auto& [name, role] :
       {std::pair("ab", "c"), std::pair("a", "bc"), std::pair("c", "ab"),
        std::pair("", "abc")}) {
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      const auto key = FingerprintKey(name, role, static_cast<DType>(dtype));
      EXPECT_TRUE(seen.insert(ToString(Of(key, image))).second);
    }
  }
}

TEST(Fingerprint, OfZerosIsZero) {
  EXPECT_EQ(Of(kKey, Bytes(5000)), Fingerprint{});
  EXPECT_EQ(Of(kKey, {}), Fingerprint{});
}

TEST(Fingerprint, AddsModuloThePrime) {
  Fingerprint sum = {kFingerprintModulus - 1, 5};
  sum += {1, kFingerprintModulus - 1};
  EXPECT_EQ(sum, (Fingerprint{0, 4}));
  EXPECT_TRUE(IsReduced({kFingerprintModulus - 1, 0}));
  EXPECT_FALSE(IsReduced({kFingerprintModulus, 0}));
  EXPECT_FALSE(IsReduced({0, ~uint64_t{0}}));
}

// A released format: these values never change.
TEST(Fingerprint, KeepsItsValues) {
  EXPECT_EQ(ToString(kKey), "605158b52103b7bc96bf17cc1a4b43ba");
  std::vector<uint32_t> ramp(2000);
  uint32_t value = 0;
  for (uint32_t& r : ramp) r = value += 0x01020304;
  EXPECT_EQ(ToString(Of(ramp)), "0dc040118b3373f31cc9a227efdac4a8");
  EXPECT_EQ(ToString(Of<uint8_t>({1, 2, 3, 4, 5, 6, 7})),
            "1e882df54c6a4b1404cf8302df7515f6");
}

TEST(RootFingerprint, KeepsItsValue) {
  RootFingerprint root;
  root.Add("a", "exp_avg", DType::kBF16, {}, {1, 2});
  root.Add("a", "master", DType::kF32, {3, 4}, {5, kFingerprintModulus - 1});
  EXPECT_EQ(ToString(root.Digest()), "fcfdeeab347ef8a23810d319208058c7");
}

TEST(RootFingerprint, DependsOnEveryField) {
  std::set<std::string> seen;
  const auto add = [&](absl::string_view name, absl::string_view role,
                       DType dtype, const Shape& shape,
                       const Fingerprint& fingerprint) {
    RootFingerprint root;
    root.Add(name, role, dtype, shape, fingerprint);
    EXPECT_TRUE(seen.insert(ToString(root.Digest())).second);
  };
  add("ab", "c", DType::kF32, {2, 3}, {1, 2});
  add("a", "bc", DType::kF32, {2, 3}, {1, 2});
  add("ab", "d", DType::kF32, {2, 3}, {1, 2});
  add("ab", "c", DType::kI32, {2, 3}, {1, 2});
  add("ab", "c", DType::kF32, {3, 2}, {1, 2});
  add("ab", "c", DType::kF32, {6}, {1, 2});
  add("ab", "c", DType::kF32, {2, 3}, {2, 1});
  add("ab", "c", DType::kF32, {2, 3}, {1, 3});
}

}  // namespace
}  // namespace shardshift::ckpt
