// What goes through the codec comes back, and nothing else gets through it.
// SPDX-License-Identifier: Apache-2.0
#include "ckpt/codec/shuffle_zstd.h"

#include <zstd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes Noise(int64_t size) {
  std::mt19937_64 random(7);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Weights as they are: normal, of standard deviation 0.02.
Bytes Weights(int64_t size) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(size / 4);
  for (float& value : values) value = normal(random);
  Bytes bytes(size);
  std::memcpy(bytes.data(), values.data(), values.size() * 4);
  return bytes;
}

Bytes Compressed(const Bytes& values, int64_t chunk_bytes,
                 int64_t item_size = 4) {
  Bytes planes(chunk_bytes);
  Bytes stored(ZSTD_COMPRESSBOUND(chunk_bytes));
  const auto size = CompressBlock(values, item_size, planes, stored);
  EXPECT_OK(size);
  stored.resize(size.value_or(0));
  return stored;
}

absl::StatusOr<Bytes> Decompressed(const Bytes& stored, int64_t size,
                                   int64_t chunk_bytes, int64_t item_size = 4) {
  Bytes planes(chunk_bytes);
  Bytes values(size);
  const absl::Status status =
      DecompressBlock(stored, item_size, planes, values);
  if (!status.ok()) return status;
  return values;
}

void ExpectRoundTrip(const Bytes& values, int64_t chunk_bytes,
                     int64_t item_size) {
  const Bytes stored = Compressed(values, chunk_bytes, item_size);
  const auto back = Decompressed(stored, static_cast<int64_t>(values.size()),
                                 chunk_bytes, item_size);
  ASSERT_OK(back.status());
  EXPECT_TRUE(*back == values);
}

TEST(ShuffleZstd, GivesBackBlocksOfAnySizeAndContent) {
  for (const int64_t item_size : {1, 2, 4, 8}) {
    for (const int64_t size : {4096, 131'072, 300'000}) {
      SCOPED_TRACE(absl::StrCat(item_size, " ", size));
      for (const Bytes& values : {Noise(size), Weights(size), Bytes(size),
                                  Bytes(size, std::byte{1})}) {
        ExpectRoundTrip(values, size, item_size);
        ExpectRoundTrip(values, 400'000, item_size);
      }
    }
  }
  ExpectRoundTrip(Weights(kBlockBytes), kBlockBytes, 4);
  ExpectRoundTrip(Noise(kBlockBytes), kBlockBytes, 8);
}

TEST(ShuffleZstd, PadsAShortBlockAsIfItsZerosWereValues) {
  Bytes values = Weights(8192);
  const Bytes stored = Compressed(values, 65'536);
  values.resize(65'536);
  EXPECT_TRUE(stored == Compressed(values, 65'536));
}

TEST(ShuffleZstd, SavesOnWeightsAsMuchAsTheirExponentsRepeat) {
  const Bytes stored = Compressed(Weights(kBlockBytes), kBlockBytes);
  EXPECT_LT(std::ssize(stored), kBlockBytes * 86 / 100);
}

TEST(ShuffleZstd, NeedsNoMoreRoomThanPromisedForWhatDoesNotCompress) {
  const Bytes stored = Compressed(Noise(kBlockBytes), kBlockBytes);
  EXPECT_GT(std::ssize(stored), kBlockBytes);
  EXPECT_LE(std::ssize(stored), kMaxStoredBytes);
}

// The file of ours is the one that HDF5's own filter 2 would write.
TEST(ShuffleZstd, IsAFrameOfTheShuffledBytes) {
  const Bytes values = Weights(8192);
  const Bytes stored = Compressed(values, 8192);
  Bytes planes(8192);
  ASSERT_EQ(ZSTD_decompress(planes.data(), planes.size(), stored.data(),
                            stored.size()),
            planes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(planes[i % 4 * 2048 + i / 4], values[i]) << i;
  }
}

TEST(ShuffleZstd, RefusesEveryTruncationAndExtension) {
  const Bytes stored = Compressed(Weights(4096), 4096);
  for (int64_t size = 0; size < std::ssize(stored); ++size) {
    const Bytes cut(stored.begin(), stored.begin() + size);
    EXPECT_THAT(Decompressed(cut, 4096, 4096),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("zstd frame")));
  }
  Bytes twice = stored;
  twice.insert(twice.end(), stored.begin(), stored.end());
  Bytes longer = stored;
  longer.push_back(std::byte{0});
  for (const Bytes& extended : {twice, longer}) {
    EXPECT_THAT(Decompressed(extended, 4096, 4096),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("one zstd")));
  }
}

TEST(ShuffleZstd, RefusesAFrameOfAnotherSize) {
  const Bytes stored = Compressed(Weights(8192), 8192);
  for (const int64_t chunk : {4096, 8188, 8196, 16'384}) {
    EXPECT_THAT(Decompressed(stored, 4096, chunk),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("one zstd")));
  }
}

// A frame may say that it holds petabytes, or not say what it holds.
TEST(ShuffleZstd, RefusesFramesThatPromiseTooMuchOrNothing) {
  const Bytes huge = {
      std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f}, std::byte{0xfd},
      std::byte{0xe0}, std::byte{0},    std::byte{0},    std::byte{0},
      std::byte{0},    std::byte{0},    std::byte{0},    std::byte{4},
      std::byte{0},    std::byte{3},    std::byte{0},    std::byte{0}};
  ASSERT_EQ(ZSTD_getFrameContentSize(huge.data(), huge.size()),
            uint64_t{1} << 50);
  Bytes unknown(64'000);
  const Bytes values = Weights(4096);
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  unknown.resize(ZSTD_compress2(context, unknown.data(), unknown.size(),
                                values.data(), values.size()));
  ZSTD_freeCCtx(context);
  for (const Bytes& frame : {huge, unknown}) {
    EXPECT_THAT(Decompressed(frame, 4096, 4096),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("one zstd")));
  }
}

// Checksums are the reader's affair: a changed frame may decode, to a chunk.
TEST(ShuffleZstd, SurvivesAFlippedBitInEveryByte) {
  const Bytes stored = Compressed(Weights(4096), 4096);
  int64_t refused = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    Bytes flipped = stored;
    flipped[i] ^= std::byte{1} << i % 8;
    const auto values = Decompressed(flipped, 4096, 4096);
    if (values.ok()) continue;
    EXPECT_EQ(values.status().code(), absl::StatusCode::kDataLoss);
    ++refused;
  }
  EXPECT_GT(refused, 3);
}

}  // namespace
}  // namespace shardshift::ckpt
