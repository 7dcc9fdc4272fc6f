// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/streaming_copy.h"

#include <algorithm>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

TEST(StreamingCopy, CopiesEveryByteAndNoOtherWhateverBeginAndSize) {
  std::vector<std::byte> src(600);
  for (size_t i = 0; i < src.size(); ++i) {
    src[i] = static_cast<std::byte>(1 + i % 251);
  }
  for (size_t from = 0; from < 18; ++from) {
    for (size_t to = 0; to < 66; ++to) {
      for (const size_t size : {0, 1, 15, 16, 63, 64, 65, 127, 200, 511}) {
        std::vector<std::byte> dst(700, std::byte{0});
        StreamingCopy(std::span(src).subspan(from, size),
                      std::span(dst).subspan(to, size));
        std::vector<std::byte> expected(700, std::byte{0});
        std::copy_n(src.begin() + static_cast<int64_t>(from), size,
                    expected.begin() + static_cast<int64_t>(to));
        ASSERT_EQ(dst, expected) << from << " " << to << " " << size;
      }
    }
  }
}

}  // namespace
}  // namespace shardshift::ckpt
