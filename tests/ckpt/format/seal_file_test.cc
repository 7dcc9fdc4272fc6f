// Sealing a file writes all that is not payload, and says what it wrote.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ckpt/core/coding.h"
#include "ckpt/format/user_block.h"
#include "ckpt/io/file.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

constexpr absl::string_view kTable = "a table of 22 bytes...";
constexpr int64_t kFileBytes = 40'960;

// Payload and table share a page; another piece of payload fills two pages
// and a bit of a third; the rest of the metadata is at 4096 and at the end.
class SealFileTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file = File::Create(JoinPath(dir_.path(), "f"));
    ASSERT_OK(file.status());
    file_ = std::make_unique<File>(*std::move(file));
    expected_.resize(kFileBytes, '\0');
    for (const ByteRange& range : payload_) {
      Fill(range.begin, range.end - range.begin);
      const absl::string_view bytes(expected_);
      ASSERT_OK(file_->WriteAt(
          range.begin,
          AsBytes(bytes.substr(range.begin, range.end - range.begin))));
    }
    for (const int64_t offset : {4096, 32'768}) {
      Fill(offset, 3000);
      image_.Put(offset, AsBytes(expected_.substr(offset, 3000)));
    }
    image_.Resize(kFileBytes);
    expected_.replace(block_.table_offset_bytes, kTable.size(), kTable.data(),
                      kTable.size());
  }

  void Fill(int64_t offset, int64_t size) {
    for (int64_t i = offset; i < offset + size; ++i) {
      expected_[i] = static_cast<char>(1 + i % 251);
    }
  }

  const TempDir dir_;
  std::unique_ptr<File> file_;
  FileImage image_;
  std::string expected_;  // but for the user block
  const std::vector<ByteRange> payload_ = {{8192, 8200}, {12'288, 21'000}};
  const UserBlock block_ = {.table_offset_bytes = 8208};
};

TEST_F(SealFileTest, WritesAllButThePayload) {
  ASSERT_OK_AND_ASSIGN(const UserBlock sealed,
                       SealFile(*file_, image_, block_, kTable, payload_));
  const std::string written = ReadFile(file_->path());
  EXPECT_EQ(written.size(), expected_.size());
  EXPECT_EQ(written.substr(4096), expected_.substr(4096));
  EXPECT_EQ(written.substr(0, 4096), EncodeUserBlock(sealed));
}

TEST_F(SealFileTest, GivesTheBlockAsReadersFindIt) {
  ASSERT_OK_AND_ASSIGN(const UserBlock sealed,
                       SealFile(*file_, image_, block_, kTable, payload_));
  ASSERT_OK_AND_ASSIGN(const UserBlock read,
                       ReadUserBlock(*file_, FileRole::kPart));
  EXPECT_EQ(read, sealed);
  ASSERT_OK_AND_ASSIGN(const auto table, ReadTableBytes(*file_, read));
  EXPECT_TRUE(std::ranges::equal(table, AsBytes(kTable)));
}

TEST_F(SealFileTest, TakesTheDigestThatTheFileHas) {
  ASSERT_OK_AND_ASSIGN(const UserBlock sealed,
                       SealFile(*file_, image_, block_, kTable, payload_));
  ASSERT_OK_AND_ASSIGN(const Digest128 digest,
                       ComputeMetadataDigest(*file_, sealed, payload_));
  EXPECT_EQ(digest, sealed.metadata_digest);
}

TEST_F(SealFileTest, DigestsEveryByteThatIsNotPayload) {
  ASSERT_OK_AND_ASSIGN(const UserBlock sealed,
                       SealFile(*file_, image_, block_, kTable, payload_));
  for (const int64_t offset :
       {4096, 8191, 8200, 8208, 12'287, 21'000, 40'959}) {
    SCOPED_TRACE(offset);
    const auto changed = static_cast<std::byte>(expected_[offset] ^ 1);
    ASSERT_OK(file_->WriteAt(offset, {&changed, 1}));
    ASSERT_OK_AND_ASSIGN(const Digest128 digest,
                         ComputeMetadataDigest(*file_, sealed, payload_));
    EXPECT_FALSE(digest == sealed.metadata_digest);
    const auto original = static_cast<std::byte>(expected_[offset]);
    ASSERT_OK(file_->WriteAt(offset, {&original, 1}));
  }
}

}  // namespace
}  // namespace shardshift::ckpt
