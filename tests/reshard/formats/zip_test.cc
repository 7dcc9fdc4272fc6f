// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/crc32.h"
#include "reshard/formats/zip_layout.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/memory_file.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

const ZipFiles& TwoFiles() {
  static const auto& files =
      *new ZipFiles({{"x/a", "first"}, {"x/b", "second one"}});
  return files;
}

void ExpectRefusal(const std::string& bytes, StatusCode code,
                   const std::string& message) {
  const MemoryFile memory(bytes);
  EXPECT_THAT(ZipArchive::Read(memory.file(), memory.all()),
              StatusIs(code, HasSubstr(message)));
}

// `bytes` with the little-endian `value` in place of what is at `at`.
std::string Patched(std::string bytes, size_t at, uint64_t value,
                    int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) {
    bytes[at + i] = static_cast<char>(value >> (8 * i));
  }
  return bytes;
}

size_t Central(const std::string& zip, int entry) {
  size_t at = 0;
  for (int i = 0; i <= entry; ++i) at = zip.find("PK\1\2", at + 1);
  return at;
}

void ExpectFiles(const ckpt::File& file, FileRange range,
                 const ZipFiles& files) {
  ASSERT_OK_AND_ASSIGN(const auto zip, ZipArchive::Read(file, range));
  ASSERT_EQ(zip.entries().size(), files.size());
  for (const auto& [name, bytes] : files) {
    const ZipEntry* entry = zip.Find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->payload.num_bytes, bytes.size());
    EXPECT_EQ((entry->payload.offset_bytes - range.offset_bytes) % 64, 0);
    EXPECT_EQ(ReadZipEntry(file, *entry, 1 << 20).value(), bytes);
    EXPECT_OK(CheckZipEntry(file, *entry));
  }
  EXPECT_EQ(zip.Find("none"), nullptr);
}

TEST(Zip, WhatIsLaidOutIsRead) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    ZipFiles files;
    for (int i = 0, n = static_cast<int>(random() % 6); i < n; ++i) {
      files.push_back({absl::StrCat("dir/", std::string(random() % 90, 'n'), i),
                       std::string(random() % 3 * (random() % 500), 'p')});
    }
    const MemoryFile memory(ZipOf(files));
    ExpectFiles(memory.file(), memory.all(), files);
  }
}

TEST(Zip, WithinAFile) {
  const std::string zip = ZipOf(TwoFiles());
  const MemoryFile memory(absl::StrCat("PK before", zip, zip, "PK\5\6 after"));
  const int64_t num_bytes = std::ssize(zip);
  ExpectFiles(memory.file(), {9, num_bytes}, TwoFiles());
  ExpectFiles(memory.file(), {9 + num_bytes, num_bytes}, TwoFiles());
  EXPECT_THAT(ZipArchive::Read(memory.file(), {8, num_bytes}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("no end record")));
  for (const FileRange range :
       {FileRange{-1, 5}, FileRange{0, -1}, FileRange{0, 1 << 20},
        FileRange{std::numeric_limits<int64_t>::max(), num_bytes}}) {
    EXPECT_THAT(ZipArchive::Read(memory.file(), range),
                StatusIs(StatusCode::kDataLoss, HasSubstr("bytes, expected")));
  }
}

TEST(Zip, WithAComment) {
  const std::string zip = ZipOf(TwoFiles());
  const std::string comment = "PK\5\6 is how a comment may begin";
  const MemoryFile memory(Patched(zip, zip.size() - 2, comment.size(), 2) +
                          comment);
  ExpectFiles(memory.file(), memory.all(), TwoFiles());
}

// The headers of an archive of 64-bit sizes, in a file that is all holes.
TEST(Zip, Beyond32Bits) {
  constexpr int64_t kLarge = (int64_t{1} << 32) + 5;
  ZipLayout layout;
  layout.Add("x/small", 3);
  layout.Add("x/large", kLarge);
  layout.Add("x/last", 0xFFFFFFFF);
  layout.Add("x/beyond", 7);
  const std::vector<uint32_t> crcs = {1, 2, 3, 4};
  const ckpt::TempDir dir;
  const std::string path = ckpt::JoinPath(dir.path(), "large");
  ASSERT_OK_AND_ASSIGN(const auto file, ckpt::File::Create(path));
  for (size_t i = 0; i < layout.num_entries(); ++i) {
    const std::string header = layout.Header(i, crcs[i]);
    EXPECT_EQ(layout.header_offset(i) + std::ssize(header),
              layout.payload_offset(i));
    ASSERT_OK(file.WriteAt(layout.header_offset(i), ckpt::AsBytes(header)));
  }
  const std::string end = layout.End(crcs);
  ASSERT_OK(file.WriteAt(layout.end_offset(), ckpt::AsBytes(end)));
  EXPECT_EQ(layout.end_offset() + std::ssize(end), layout.total_bytes());
  ASSERT_OK_AND_ASSIGN(const auto readable, ckpt::File::OpenForRead(path));
  ASSERT_OK_AND_ASSIGN(const FileRange all, WholeFile(readable));
  EXPECT_EQ(all.num_bytes, layout.total_bytes());
  ASSERT_OK_AND_ASSIGN(const auto zip, ZipArchive::Read(readable, all));
  ASSERT_EQ(zip.entries().size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    const ZipEntry& entry = zip.entries()[i];
    EXPECT_EQ(entry.payload.offset_bytes, layout.payload_offset(i));
    EXPECT_EQ(entry.payload.num_bytes, layout.payload_size(i));
    EXPECT_EQ(entry.crc32, crcs[i]);
  }
  EXPECT_THAT(ReadZipEntry(readable, zip.entries()[1], 1 << 20),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("x/large")));
}

TEST(Zip, ManyEntries) {
  ZipFiles files;
  for (int i = 0; i < 70'000; ++i) files.push_back({absl::StrCat(i), ""});
  const MemoryFile memory(ZipOf(files));
  ASSERT_OK_AND_ASSIGN(const auto zip,
                       ZipArchive::Read(memory.file(), memory.all()));
  EXPECT_EQ(zip.entries().size(), files.size());
}

TEST(Zip, RefusesWhatIsCut) {
  const std::string zip = ZipOf(TwoFiles());
  for (size_t size = 0; size < zip.size(); ++size) {
    ExpectRefusal(zip.substr(0, size), StatusCode::kDataLoss, "no end record");
  }
  ExpectRefusal(absl::StrCat(zip, "x"), StatusCode::kDataLoss, "no end record");
}

TEST(Zip, RefusesWhatIsInFront) {
  ExpectRefusal(absl::StrCat("x", ZipOf(TwoFiles())), StatusCode::kDataLoss,
                "does not end where the end records begin");
}

TEST(Zip, RefusesCompressionAndEncryption) {
  const std::string zip = ZipOf(TwoFiles());
  const size_t central = Central(zip, 1);
  ExpectRefusal(Patched(zip, central + 10, 8, 2), StatusCode::kUnimplemented,
                "\"x/b\" is compressed (method 8)");
  ExpectRefusal(Patched(zip, central + 8, 0x801, 2), StatusCode::kUnimplemented,
                "\"x/b\" is encrypted");
}

TEST(Zip, RefusesEntriesThatOverlap) {
  const std::string zip = ZipOf(TwoFiles());
  // The second directory entry leads to the first one's place.
  std::string same = Patched(zip, Central(zip, 1) + 42, 0, 4);
  ExpectRefusal(same, StatusCode::kDataLoss, "overlaps what follows it");
  // The first one reaches into the second, the second into the directory.
  for (const int entry : {0, 1}) {
    std::string large = zip;
    const size_t local = entry == 0 ? 0 : zip.find("PK\3\4", 1);
    for (const size_t at : {Central(zip, entry) + 20, Central(zip, entry) + 24,
                            local + 18, local + 22}) {
      large = Patched(large, at, 75, 4);
    }
    ExpectRefusal(large, StatusCode::kDataLoss, "overlaps what follows it");
  }
}

TEST(Zip, RefusesEntriesThatLeaveIt) {
  const std::string zip = ZipOf(TwoFiles());
  ExpectRefusal(Patched(zip, Central(zip, 0) + 42, 0xFFFFFF, 4),
                StatusCode::kDataLoss, "leaves the archive");
  ExpectRefusal(Patched(zip, Central(zip, 0) + 42, 0xFFFFFFFF, 4),
                StatusCode::kDataLoss, "no whole 64-bit sizes");
  ExpectRefusal(Patched(zip, Central(zip, 0) + 20, 6, 4), StatusCode::kDataLoss,
                "has two sizes");
}

TEST(Zip, RefusesHeadersThatDisagree) {
  const std::string zip = ZipOf(TwoFiles());
  ExpectRefusal(Patched(zip, 0, 0, 4), StatusCode::kDataLoss,
                "no local header");
  // Method, CRC, size, length of the name, name.
  for (const size_t at : {8, 14, 18, 22, 26, 30}) {
    ExpectRefusal(Patched(zip, at, 1, 1), StatusCode::kDataLoss,
                  "the directory contradicts");
  }
}

TEST(Zip, RefusesNamesThatAreThereTwice) {
  ExpectRefusal(ZipOf({{"a", "x"}, {"a", "y"}}), StatusCode::kDataLoss,
                "two zip entries are named \"a\"");
}

TEST(Zip, RefusesADamagedDirectory) {
  const std::string zip = ZipOf(TwoFiles());
  ExpectRefusal(Patched(zip, Central(zip, 1), 0, 1), StatusCode::kDataLoss,
                "directory is damaged");
  ExpectRefusal(Patched(zip, Central(zip, 1) + 28, 9000, 2),
                StatusCode::kDataLoss, "directory is cut");
  const size_t end = zip.size() - 22;
  ExpectRefusal(Patched(zip, end + 10, 3, 2), StatusCode::kDataLoss,
                "has 2 entries, the end record says 3");
  ExpectRefusal(Patched(zip, end + 12, 5, 4), StatusCode::kDataLoss,
                "does not end where");
  ExpectRefusal(Patched(zip, end + 4, 1, 2), StatusCode::kDataLoss,
                "one of several files");
}

TEST(Zip, RefusesADamagedPayload) {
  const std::string zip = ZipOf(TwoFiles());
  const MemoryFile memory(Patched(zip, zip.find("first"), 'F', 1));
  ASSERT_OK_AND_ASSIGN(const auto archive,
                       ZipArchive::Read(memory.file(), memory.all()));
  const ZipEntry& entry = *archive.Find("x/a");
  EXPECT_THAT(ReadZipEntry(memory.file(), entry, 100),
              StatusIs(StatusCode::kDataLoss, HasSubstr("CRC-32")));
  EXPECT_THAT(CheckZipEntry(memory.file(), entry),
              StatusIs(StatusCode::kDataLoss, HasSubstr("\"x/a\"")));
}

TEST(Zip, CrcsOfPieces) {
  EXPECT_EQ(CrcOf("123456789"), 0xCBF43926);
  EXPECT_EQ(ckpt::CombineCrc32(CrcOf("1234"), CrcOf("56789"), 5), 0xCBF43926);
}

}  // namespace
}  // namespace shardshift::reshard
