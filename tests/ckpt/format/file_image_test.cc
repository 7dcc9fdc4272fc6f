// A file image is a dense array of bytes, but for its size.
// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/file_image.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ckpt/io/file.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using Bytes = std::vector<std::byte>;

// Random bytes, none of them zero.
Bytes Filled(int64_t size, std::mt19937& random) {
  Bytes bytes(static_cast<size_t>(size));
  for (std::byte& byte : bytes) byte = std::byte(1 + random() % 255);
  return bytes;
}

Bytes ContentOf(const FileImage& image) {
  Bytes bytes(static_cast<size_t>(image.file_bytes()), std::byte{0xee});
  image.Get(0, bytes);
  return bytes;
}

TEST(FileImage, IsADenseArrayUnderAnyCalls) {
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    std::mt19937 random(seed);
    FileImage image;
    Bytes dense;
    for (int step = 0; step < 200; ++step) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " step " << step);
      const auto offset = static_cast<int64_t>(random() % 50'000);
      if (random() % 8 == 0) {
        image.Resize(offset);
        dense.resize(static_cast<size_t>(offset));
      } else {
        const Bytes bytes =
            Filled(static_cast<int64_t>(random() % 9'000), random);
        image.Put(offset, bytes);
        dense.resize(std::max(dense.size(), offset + bytes.size()));
        std::copy(bytes.begin(), bytes.end(), dense.begin() + offset);
      }
      ASSERT_EQ(ContentOf(image), dense);
    }
  }
}

TEST(FileImage, GetsZerosFromHolesAndBeyondTheEnd) {
  FileImage image;
  image.Put(5000, Bytes(2, std::byte{7}));
  Bytes bytes(20'000, std::byte{0xee});
  image.Get(100, bytes);
  Bytes expected(20'000);
  expected[4900] = expected[4901] = std::byte{7};
  EXPECT_EQ(bytes, expected);
}

TEST(FileImage, KeepsOnlyThePagesThatWereWritten) {
  FileImage image;
  image.Resize(int64_t{1} << 50);
  image.Put((int64_t{1} << 49) - 1, Bytes(2, std::byte{7}));
  EXPECT_EQ(image.num_pages(), 2);
  EXPECT_EQ(image.file_bytes(), int64_t{1} << 50);
}

TEST(FileImage, WritesItsPagesWithinTheRangeAndNothingElse) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    const TempDir dir;
    ASSERT_OK_AND_ASSIGN(const File file,
                         File::Create(JoinPath(dir.path(), "f")));
    // The file is full of other bytes, which holes must leave alone.
    Bytes expected(60'000, std::byte{0});
    ASSERT_OK(file.WriteAt(0, Filled(60'000, random)));
    ASSERT_OK(file.ReadAt(0, expected));
    FileImage image;
    std::vector<bool> has_page(15);
    for (int i = 0; i < 6; ++i) {
      const size_t page = random() % has_page.size();
      has_page[page] = true;
      image.Put(static_cast<int64_t>(page) * FileImage::kPageBytes,
                Filled(FileImage::kPageBytes, random));
    }
    const auto begin = static_cast<int64_t>(random() % 60'000);
    const int64_t end =
        begin + static_cast<int64_t>(random()) % (60'001 - begin);
    Bytes content(60'000);
    image.Get(0, content);
    for (int64_t i = begin; i < end; ++i) {
      if (has_page[i / FileImage::kPageBytes]) expected[i] = content[i];
    }
    ASSERT_OK(image.Write(file, {begin, end}));
    Bytes written(60'000);
    ASSERT_OK(file.ReadAt(0, written));
    EXPECT_EQ(written, expected);
  }
}

TEST(FileImage, WritesMoreThanOneWriteHolds) {
  std::mt19937 random(6);
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::Create(JoinPath(dir.path(), "f")));
  FileImage image;
  const Bytes bytes = Filled((int64_t{5} << 19) + 77, random);
  image.Put(1234, bytes);
  ASSERT_OK(image.Write(file, {1234, image.file_bytes()}));
  Bytes written(bytes.size());
  ASSERT_OK(file.ReadAt(1234, written));
  EXPECT_EQ(written, bytes);
}

}  // namespace
}  // namespace shardshift::ckpt
