// SPDX-License-Identifier: Apache-2.0
#include "ckpt/codec/byte_shuffle.h"

#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

std::vector<std::byte> RandomBytes(int64_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Item sizes, numbers of items around those of a tile, and items of padding.
template <typename Check>
void ForEachSize(Check check) {
  for (const int64_t item_size : {1, 2, 4, 8}) {
    const int64_t tile = 4096 / item_size;
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{17}, tile - 1, tile,
                            tile + 1, 3 * tile + 5}) {
      for (const int64_t padding : {0, 1, 100}) {
        SCOPED_TRACE(absl::StrCat(item_size, " ", n, " ", padding));
        check(item_size, n, padding);
      }
    }
  }
}

TEST(ByteShuffle, GathersEachByteOfTheItemsAndPadsWithZeros) {
  ForEachSize([](int64_t item_size, int64_t n, int64_t padding) {
    const std::vector<std::byte> items = RandomBytes(n * item_size);
    std::vector<std::byte> planes((n + padding) * item_size, std::byte{0xee});
    ByteShuffle(items, item_size, planes);
    std::vector<std::byte> expected(planes.size());
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t b = 0; b < item_size; ++b) {
        expected[b * (n + padding) + i] = items[i * item_size + b];
      }
    }
    EXPECT_TRUE(planes == expected);
  });
}

TEST(ByteUnshuffle, IsTheInverse) {
  ForEachSize([](int64_t item_size, int64_t n, int64_t padding) {
    const std::vector<std::byte> items = RandomBytes(n * item_size);
    std::vector<std::byte> planes((n + padding) * item_size);
    ByteShuffle(items, item_size, planes);
    std::vector<std::byte> back(items.size());
    ByteUnshuffle(planes, item_size, back);
    EXPECT_TRUE(back == items);
  });
}

}  // namespace
}  // namespace shardshift::ckpt
