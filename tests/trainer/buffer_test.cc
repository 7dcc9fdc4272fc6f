// SPDX-License-Identifier: Apache-2.0
#include "trainer/buffer.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace shardshift::trainer {
namespace {

TEST(BufferUse, CountsWhatLivesAndTheMostOfIt) {
  const int64_t before = ThreadBufferUse().live_bytes;
  ResetThreadBufferPeak();
  {
    Buffer a(10);
    Buffer moved = std::move(a);
    EXPECT_EQ(ThreadBufferUse().live_bytes, before + 40);
    moved = Buffer(5);
    EXPECT_EQ(ThreadBufferUse().live_bytes, before + 20);
  }
  EXPECT_EQ(ThreadBufferUse().live_bytes, before);
  EXPECT_EQ(ThreadBufferUse().peak_bytes, before + 60);
  ResetThreadBufferPeak();
  EXPECT_EQ(ThreadBufferUse().peak_bytes, before);
}

TEST(BufferUse, IsThatOfOneThread) {
  const BufferUse before = ThreadBufferUse();
  std::thread([] {
    const Buffer buffer(1000);
    EXPECT_EQ(ThreadBufferUse().live_bytes, 4000);
  }).join();
  EXPECT_EQ(ThreadBufferUse().live_bytes, before.live_bytes);
}

}  // namespace
}  // namespace shardshift::trainer
