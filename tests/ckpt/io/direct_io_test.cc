// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <cerrno>

#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/faulty_disk.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20;

// A byte tells its place in the file.
std::byte ByteAt(int64_t offset_bytes) {
  const auto hash = static_cast<uint64_t>(offset_bytes) * 0x9e3779b97f4a7c15u;
  return static_cast<std::byte>(hash >> 56);
}

void Fill(int64_t offset_bytes, std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte = ByteAt(offset_bytes++);
}

bool IsFilled(int64_t offset_bytes, std::span<const std::byte> bytes) {
  return std::ranges::all_of(
      bytes, [&](std::byte byte) { return byte == ByteAt(offset_bytes++); });
}

// Notes the direct transfers, and refuses direct I/O if told to.
class DirectCalls : public SystemCalls {
 public:
  enum class Refuses { kNothing, kOpen, kTransfer };
  explicit DirectCalls(Refuses refuses) : refuses_(refuses) {}

  int Open(const std::string& path, int flags, mode_t mode) override {
    if ((flags & O_DIRECT) != 0 && refuses_ == Refuses::kOpen) {
      errno = EINVAL;
      return -1;
    }
    return SystemCalls::Open(path, flags, mode);
  }
  ssize_t PRead(int fd, void* data, size_t num_bytes,
                int64_t offset_bytes) override {
    if (!Allows(fd, num_bytes)) return -1;
    return SystemCalls::PRead(fd, data, num_bytes, offset_bytes);
  }
  ssize_t PWrite(int fd, const void* data, size_t num_bytes,
                 int64_t offset_bytes) override {
    if (!Allows(fd, num_bytes)) return -1;
    return SystemCalls::PWrite(fd, data, num_bytes, offset_bytes);
  }

  const std::vector<size_t>& direct_sizes() const { return direct_sizes_; }

 private:
  bool Allows(int fd, size_t num_bytes) {
    if ((::fcntl(fd, F_GETFL) & O_DIRECT) == 0) return true;
    direct_sizes_.push_back(num_bytes);
    errno = EINVAL;
    return refuses_ != Refuses::kTransfer;
  }

  const Refuses refuses_;
  std::vector<size_t> direct_sizes_;
};

class DirectIo : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(buffer_, AlignedBuffer::Allocate(2 * kMiB));
    ASSERT_OK_AND_ASSIGN(const File file,
                         File::Create(path_, PageCache::kBypass));
    if (!file.bypasses_cache()) GTEST_SKIP() << path_ << " allows no O_DIRECT";
    ASSERT_OK(file.Allocate(8192));
  }

  // Writes, and reads back, kSize bytes at byte 4096 of path_.
  void Write() {
    ASSERT_OK_AND_ASSIGN(const File file,
                         File::OpenForUpdate(path_, PageCache::kBypass));
    Fill(4096, payload());
    ASSERT_OK(file.WriteAt(4096, payload()));
  }
  void Read() {
    ASSERT_OK_AND_ASSIGN(const File file,
                         File::OpenForRead(path_, PageCache::kBypass));
    std::ranges::fill(payload(), std::byte{0});
    ASSERT_OK(file.ReadAt(4096, payload()));
    EXPECT_TRUE(IsFilled(4096, payload()));
  }
  // By a File that knows no direct I/O.
  void CheckFile() {
    ASSERT_OK_AND_ASSIGN(const std::string text, ReadWholeFile(path_));
    const auto bytes = std::as_bytes(std::span(text));
    ASSERT_EQ(std::ssize(bytes), 4096 + kSize);
    EXPECT_TRUE(IsFilled(4096, bytes.subspan(4096)));
    EXPECT_EQ(text.substr(0, 4096), std::string(4096, '\0'));
  }

  std::span<std::byte> payload() { return buffer_.bytes().first(kSize); }

  static constexpr int64_t kSize = kMiB + 100;
  const TempDir dir_;
  const std::string path_ = JoinPath(dir_.path(), "f");
  AlignedBuffer buffer_;
};

TEST_F(DirectIo, PassesTheCacheByButForTheEndOfTheLastBlock) {
  DirectCalls calls(DirectCalls::Refuses::kNothing);
  const ScopedSystemCalls scope(calls);
  Write();
  Read();
  EXPECT_THAT(calls.direct_sizes(), ElementsAre(kMiB, kMiB));
  CheckFile();
}

TEST_F(DirectIo, UsesTheCacheWhereDirectOpenIsRefused) {
  DirectCalls calls(DirectCalls::Refuses::kOpen);
  const ScopedSystemCalls scope(calls);
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::OpenForRead(path_, PageCache::kBypass));
  EXPECT_FALSE(file.bypasses_cache());
  Write();
  Read();
  EXPECT_THAT(calls.direct_sizes(), IsEmpty());
  CheckFile();
}

TEST_F(DirectIo, UsesTheCacheWhereDirectTransferIsRefused) {
  DirectCalls calls(DirectCalls::Refuses::kTransfer);
  const ScopedSystemCalls scope(calls);
  Write();
  Read();
  EXPECT_THAT(calls.direct_sizes(), ElementsAre(kMiB, kMiB));
  CheckFile();
}

TEST_F(DirectIo, UsesTheCacheForWhatIsSmallOrNotAligned) {
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::OpenForUpdate(path_, PageCache::kBypass));
  DirectCalls calls(DirectCalls::Refuses::kNothing);
  const ScopedSystemCalls scope(calls);
  const auto bytes = buffer_.bytes().first(kMiB);
  for (const int64_t offset_bytes : {1, 4095}) {
    Fill(offset_bytes, bytes);
    ASSERT_OK(file.WriteAt(offset_bytes, bytes));
    ASSERT_OK(file.ReadAt(offset_bytes + 1, bytes.subspan(1)));
    EXPECT_TRUE(IsFilled(offset_bytes, bytes.first(1)));
    EXPECT_TRUE(IsFilled(offset_bytes + 1, bytes.subspan(1)));
    ASSERT_OK(file.WriteAt(4096, bytes.subspan(1)));
  }
  ASSERT_OK(file.WriteAt(4096, bytes.first(kMinDirectBytes - 1)));
  EXPECT_THAT(calls.direct_sizes(), IsEmpty());
  ASSERT_OK(file.WriteAt(4096, bytes.first(kMinDirectBytes)));
  EXPECT_THAT(calls.direct_sizes(), ElementsAre(kMinDirectBytes));
}

TEST_F(DirectIo, PassesTheCacheByBetweenTwoOddBytes) {
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::OpenForUpdate(path_, PageCache::kBypass));
  DirectCalls calls(DirectCalls::Refuses::kNothing);
  const ScopedSystemCalls scope(calls);
  const auto bytes = buffer_.bytes().subspan(100, kMinDirectBytes + 4096);
  Fill(4196, bytes);
  ASSERT_OK(file.WriteAt(4196, bytes));
  EXPECT_THAT(calls.direct_sizes(), ElementsAre(kMinDirectBytes));
  std::ranges::fill(bytes, std::byte{0});
  ASSERT_OK(file.ReadAt(4196, bytes));
  EXPECT_THAT(calls.direct_sizes(),
              ElementsAre(kMinDirectBytes, kMinDirectBytes));
  EXPECT_TRUE(IsFilled(4196, bytes));
  // One byte less around the same pages.
  ASSERT_OK(file.WriteAt(4196, bytes.first(kMinDirectBytes + 3995)));
  EXPECT_EQ(calls.direct_sizes().size(), 2u);
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadWholeFile(path_));
  EXPECT_TRUE(IsFilled(4196, std::as_bytes(std::span(text)).subspan(4196)));
}

TEST_F(DirectIo, FinishesWhatEndsAtAnOddByte) {
  FaultyDisk disk(dir_.path());
  const ScopedSystemCalls scope(disk);
  for (int64_t n = 0; n < 20; ++n) {
    disk.ShortenAt(disk.num_operations() + n, 0);
    Write();
    Read();
  }
  EXPECT_FALSE(disk.has_struck()) << "the sweep ended too early";
  CheckFile();
}

TEST_F(DirectIo, ReportsAnErrorAfterAShortWrite) {
  FaultyDisk disk(dir_.path());
  const ScopedSystemCalls scope(disk);
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::OpenForUpdate(path_, PageCache::kBypass));
  disk.ShortenAt(disk.num_operations(), EIO);
  EXPECT_THAT(file.WriteAt(4096, payload()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path_)));
}

TEST_F(DirectIo, SaysWhereAFileEndsInsideABlock) {
  Write();
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::OpenForRead(path_, PageCache::kBypass));
  EXPECT_THAT(file.ReadAt(4096, buffer_.bytes()),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr(absl::StrCat("ends at byte ", 4096 + kSize))));
  EXPECT_THAT(file.ReadAt(2 * kMiB, buffer_.bytes()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ends at byte")));
}

// Puts another file in the place of one that is about to be opened directly.
class ReplacingCalls : public SystemCalls {
 public:
  int Open(const std::string& path, int flags, mode_t mode) override {
    if ((flags & O_DIRECT) != 0) {
      WriteFile(path + ".new", "other");
      EXPECT_EQ(SystemCalls::Rename(path + ".new", path, 0), 0);
    }
    return SystemCalls::Open(path, flags, mode);
  }
};

TEST_F(DirectIo, NeverMixesTwoFilesOfOneName) {
  ReplacingCalls calls;
  const ScopedSystemCalls scope(calls);
  EXPECT_THAT(
      File::OpenForRead(path_, PageCache::kBypass),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("was replaced")));
}

}  // namespace
}  // namespace shardshift::ckpt
