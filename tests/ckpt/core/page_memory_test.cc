// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/page_memory.h"

#include <algorithm>
#include <limits>
#include <new>
#include <string>

#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

int64_t AddressOf(const void* data) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
}

TEST(PageVector, BeginsOnAPageAndFromTwoMiBOnOnAHugeOne) {
  for (const int64_t size : {kPageBytes, kHugePageBytes - 1}) {
    EXPECT_EQ(AddressOf(PageVector<char>(size).data()) % kPageBytes, 0) << size;
  }
  for (const int64_t size : {kHugePageBytes, 3 * kHugePageBytes + 1}) {
    EXPECT_EQ(AddressOf(PageVector<char>(size).data()) % kHugePageBytes, 0)
        << size;
  }
}

TEST(PageVector, KeepsItsValuesFromAFewToMany) {
  PageVector<std::string> strings;
  for (int i = 0; i < 100000; ++i) strings.push_back(std::to_string(i));
  for (int i = 0; i < 100000; ++i) ASSERT_EQ(strings[i], std::to_string(i));
  PageVector<std::string> moved = std::move(strings);
  moved.resize(2);
  moved.shrink_to_fit();
  EXPECT_EQ(moved, PageVector<std::string>({"0", "1"}));
}

TEST(PageAllocator, RefusesMoreThanThereIs) {
  constexpr size_t kMany = std::numeric_limits<size_t>::max() / 8 + 1;
  EXPECT_THROW((void)PageAllocator<int64_t>().allocate(kMany),
               std::bad_array_new_length);
}

}  // namespace
}  // namespace shardshift::ckpt
