// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/zip_directory.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/zip_records.h"

namespace shardshift::reshard {
namespace {

// A piece of this size at the end holds the end records, whatever the comment,
// and all of a small archive.
constexpr int64_t kTailBytes = int64_t{1} << 17;

// The little-endian number of `num_bytes` bytes. REQUIRES: they are there.
uint64_t Number(absl::string_view record, int64_t at, int num_bytes) {
  uint64_t value = 0;
  for (int64_t i = num_bytes - 1; i >= 0; --i) {
    value = value << 8 | static_cast<uint8_t>(record[at + i]);
  }
  return value;
}

// What the central directory says of an entry. Offsets are the archive's.
struct Record {
  std::string name;
  int64_t header_bytes = 0;  // where the local header is
  int64_t size_bytes = 0;
  uint32_t crc32 = 0;
};

// Reads one archive.
class Reader {
 public:
  Reader(const ckpt::File& file, FileRange range)
      : file_(file), range_(range) {}

  absl::StatusOr<std::vector<ZipEntry>> Run();

 private:
  // Of the archive, not the file.
  struct Directory {
    int64_t offset_bytes = 0;
    int64_t num_bytes = 0;
    int64_t num_entries = 0;
  };

  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(
        file_.path(), ": zip archive at byte ", range_.offset_bytes, " of ",
        range_.num_bytes, " bytes: ", what));
  }
  // `num_bytes` from `offset` of the archive, which lie within it.
  absl::StatusOr<absl::string_view> Read(int64_t offset, int64_t num_bytes);
  absl::StatusOr<Directory> FindDirectory();
  absl::StatusOr<Directory> FindDirectory64(absl::string_view end,
                                            int64_t locator_offset);
  absl::Status CheckDirectory(const Directory& directory, int64_t end) const;
  absl::StatusOr<std::vector<Record>> ReadDirectory(const Directory& directory);
  absl::StatusOr<Record> ReadRecord(absl::string_view& directory);
  absl::Status ReadExtra64(absl::string_view extra, Record& record,
                           uint64_t& size, uint64_t& offset) const;
  absl::StatusOr<ZipEntry> Locate(const Record& record, int64_t limit);

  const ckpt::File& file_;
  const FileRange range_;
  std::string tail_;   // the last bytes of the archive
  std::string piece_;  // the last ones read elsewhere
};

absl::StatusOr<absl::string_view> Reader::Read(int64_t offset,
                                               int64_t num_bytes) {
  const int64_t tail_offset = range_.num_bytes - std::ssize(tail_);
  if (offset >= tail_offset) {
    return absl::string_view(tail_).substr(offset - tail_offset, num_bytes);
  }
  SS_ASSIGN_OR_RETURN(
      piece_, ReadRange(file_, {range_.offset_bytes + offset, num_bytes}));
  return piece_;
}

absl::StatusOr<std::vector<ZipEntry>> Reader::Run() {
  const int64_t tail_bytes = std::min(range_.num_bytes, kTailBytes);
  SS_ASSIGN_OR_RETURN(
      tail_, ReadRange(file_, {range_.end_bytes() - tail_bytes, tail_bytes}));
  SS_ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
  SS_ASSIGN_OR_RETURN(std::vector<Record> records, ReadDirectory(directory));
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return a.header_bytes < b.header_bytes;
  });
  std::vector<ZipEntry> entries;
  entries.reserve(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const int64_t limit = i + 1 < records.size() ? records[i + 1].header_bytes
                                                 : directory.offset_bytes;
    SS_ASSIGN_OR_RETURN(ZipEntry entry, Locate(records[i], limit));
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<Reader::Directory> Reader::FindDirectory() {
  // The last place where an end record's comment goes to the very end.
  const absl::string_view tail = tail_;
  for (int64_t at = std::ssize(tail) - zip::kEndBytes;
       at >= 0 &&
       std::ssize(tail) - at <= zip::kEndBytes + zip::kMaxCommentBytes;
       --at) {
    if (Number(tail, at, 4) != zip::kEndSignature ||
        Number(tail, at + 20, 2) !=
            static_cast<uint64_t>(std::ssize(tail) - at - zip::kEndBytes)) {
      continue;
    }
    const absl::string_view end = tail.substr(at, zip::kEndBytes);
    if (Number(end, 4, 4) != 0) return Error("is one of several files");
    const int64_t locator = at - zip::kLocator64Bytes;
    const int64_t offset = range_.num_bytes - std::ssize(tail) + at;
    if (locator >= 0 && Number(tail, locator, 4) == zip::kLocator64Signature) {
      return FindDirectory64(end, offset - zip::kLocator64Bytes);
    }
    const Directory directory = {
        .offset_bytes = static_cast<int64_t>(Number(end, 16, 4)),
        .num_bytes = static_cast<int64_t>(Number(end, 12, 4)),
        .num_entries = static_cast<int64_t>(Number(end, 10, 2))};
    SS_RETURN_IF_ERROR(CheckDirectory(directory, offset));
    return directory;
  }
  return Error(
      "has no end record: the file is cut, or something else than torch.save "
      "with its zip format (torch 1.6 and later) wrote it");
}

absl::StatusOr<Reader::Directory> Reader::FindDirectory64(
    absl::string_view end, int64_t locator_offset) {
  SS_ASSIGN_OR_RETURN(const absl::string_view locator,
                      Read(locator_offset, zip::kLocator64Bytes));
  const uint64_t offset = Number(locator, 8, 8);
  if (locator_offset < zip::kEnd64Bytes ||
      offset != static_cast<uint64_t>(locator_offset - zip::kEnd64Bytes)) {
    return Error("its 64-bit end record is not before the locator of it");
  }
  SS_ASSIGN_OR_RETURN(const absl::string_view record,
                      Read(static_cast<int64_t>(offset), zip::kEnd64Bytes));
  if (Number(record, 0, 4) != zip::kEnd64Signature ||
      Number(record, 4, 8) != zip::kEnd64Bytes - 12 ||
      Number(record, 16, 8) != 0) {
    return Error("has a bad 64-bit end record");
  }
  // Number of entries, size and place of the directory.
  const uint64_t wide[] = {Number(record, 32, 8), Number(record, 40, 8),
                           Number(record, 48, 8)};
  const uint64_t narrow[] = {Number(end, 10, 2), Number(end, 12, 4),
                             Number(end, 16, 4)};
  for (size_t i = 0; i < 3; ++i) {
    const uint64_t saturated = i == 0 ? zip::kMax16 : zip::kMax32;
    if (wide[i] > static_cast<uint64_t>(range_.num_bytes) ||
        (narrow[i] != saturated && narrow[i] != wide[i])) {
      return Error("its two end records disagree");
    }
  }
  const Directory directory = {.offset_bytes = static_cast<int64_t>(wide[2]),
                               .num_bytes = static_cast<int64_t>(wide[1]),
                               .num_entries = static_cast<int64_t>(wide[0])};
  SS_RETURN_IF_ERROR(CheckDirectory(directory, static_cast<int64_t>(offset)));
  return directory;
}

absl::Status Reader::CheckDirectory(const Directory& directory,
                                    int64_t end) const {
  if (directory.num_bytes > end ||
      directory.offset_bytes != end - directory.num_bytes) {
    return Error(absl::StrCat("its directory of ", directory.num_bytes,
                              " bytes at ", directory.offset_bytes,
                              " does not end where the end records begin, at ",
                              end));
  }
  if (directory.num_bytes > kMaxZipDirectoryBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file_.path(), ": a zip directory of ", directory.num_bytes,
                     " bytes, at most ", kMaxZipDirectoryBytes, " are read"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Record>> Reader::ReadDirectory(
    const Directory& directory) {
  SS_ASSIGN_OR_RETURN(absl::string_view bytes,
                      Read(directory.offset_bytes, directory.num_bytes));
  std::vector<Record> records;
  records.reserve(std::min(directory.num_entries,
                           directory.num_bytes / zip::kCentralBytes));
  while (!bytes.empty()) {
    SS_ASSIGN_OR_RETURN(Record record, ReadRecord(bytes));
    records.push_back(std::move(record));
  }
  if (std::ssize(records) != directory.num_entries) {
    return Error(absl::StrCat("its directory has ", records.size(),
                              " entries, the end record says ",
                              directory.num_entries));
  }
  return records;
}

absl::StatusOr<Record> Reader::ReadRecord(absl::string_view& directory) {
  if (std::ssize(directory) < zip::kCentralBytes ||
      Number(directory, 0, 4) != zip::kCentralSignature) {
    return Error("its directory is damaged");
  }
  const absl::string_view fixed = directory.substr(0, zip::kCentralBytes);
  const uint64_t name_bytes = Number(fixed, 28, 2);
  const uint64_t extra_bytes = Number(fixed, 30, 2);
  const uint64_t record_bytes =
      zip::kCentralBytes + name_bytes + extra_bytes + Number(fixed, 32, 2);
  if (directory.size() < record_bytes) return Error("its directory is cut");
  Record record;
  record.name = std::string(directory.substr(zip::kCentralBytes, name_bytes));
  const absl::string_view extra =
      directory.substr(zip::kCentralBytes + name_bytes, extra_bytes);
  directory.remove_prefix(record_bytes);

  const auto unimplemented = [&](absl::string_view what) {
    return absl::UnimplementedError(absl::StrCat(
        file_.path(), ": zip entry \"", record.name, "\" is ", what,
        "; torch.save stores entries as they are: extract the archive and "
        "pack it anew with `zip -0`"));
  };
  if ((Number(fixed, 8, 2) & zip::kEncryptedFlag) != 0) {
    return unimplemented("encrypted");
  }
  if (const uint64_t method = Number(fixed, 10, 2); method != 0) {
    return unimplemented(absl::StrCat("compressed (method ", method, ")"));
  }
  record.crc32 = static_cast<uint32_t>(Number(fixed, 16, 4));
  uint64_t size = Number(fixed, 24, 4);
  uint64_t offset = Number(fixed, 42, 4);
  if (Number(fixed, 20, 4) != size) {
    return Error(absl::StrCat("entry \"", record.name,
                              "\" is stored, but has two sizes"));
  }
  SS_RETURN_IF_ERROR(ReadExtra64(extra, record, size, offset));
  const auto limit = static_cast<uint64_t>(range_.num_bytes);
  if (size > limit || offset > limit) {
    return Error(
        absl::StrCat("entry \"", record.name, "\" leaves the archive"));
  }
  record.size_bytes = static_cast<int64_t>(size);
  record.header_bytes = static_cast<int64_t>(offset);
  return record;
}

// Numbers that did not fit 32 bits: size, stored size, offset, those that are
// missing only.
absl::Status Reader::ReadExtra64(absl::string_view extra, Record& record,
                                 uint64_t& size, uint64_t& offset) const {
  if (size != zip::kMax32 && offset != zip::kMax32) return absl::OkStatus();
  while (std::ssize(extra) >= zip::kExtraHeaderBytes) {
    const uint64_t id = Number(extra, 0, 2);
    const uint64_t num_bytes = Number(extra, 2, 2);
    extra.remove_prefix(zip::kExtraHeaderBytes);
    if (num_bytes > extra.size()) break;
    const absl::string_view field = extra.substr(0, num_bytes);
    extra.remove_prefix(num_bytes);
    if (id != zip::kExtra64) continue;
    int64_t at = 0;
    const auto next = [&]() -> std::optional<uint64_t> {
      if (at + 8 > std::ssize(field)) return std::nullopt;
      at += 8;
      return Number(field, at - 8, 8);
    };
    if (size == zip::kMax32) {
      const auto wide = next();
      if (!wide || next() != wide) break;
      size = *wide;
    }
    if (offset == zip::kMax32) {
      const auto wide = next();
      if (!wide) break;
      offset = *wide;
    }
    return absl::OkStatus();
  }
  return Error(
      absl::StrCat("entry \"", record.name, "\" has no whole 64-bit sizes"));
}

// The entry, whose local header and payload end before `limit`, where the next
// one begins.
absl::StatusOr<ZipEntry> Reader::Locate(const Record& record, int64_t limit) {
  const auto error = [&](absl::string_view what) {
    return Error(absl::StrCat("entry \"", record.name, "\" ", what));
  };
  const int64_t name_end =
      record.header_bytes + zip::kLocalBytes + std::ssize(record.name);
  if (name_end > limit) return error("overlaps what follows it");
  SS_ASSIGN_OR_RETURN(
      const absl::string_view header,
      Read(record.header_bytes, name_end - record.header_bytes));
  if (Number(header, 0, 4) != zip::kLocalSignature) {
    return error("has no local header");
  }
  const uint64_t flags = Number(header, 6, 2);
  bool agrees = header.substr(zip::kLocalBytes) == record.name &&
                Number(header, 26, 2) == record.name.size() &&
                Number(header, 8, 2) == 0 && (flags & zip::kEncryptedFlag) == 0;
  if ((flags & zip::kDescriptorFlag) == 0) {
    const auto size = static_cast<uint64_t>(record.size_bytes);
    agrees = agrees && Number(header, 14, 4) == record.crc32;
    for (const int64_t at : {18, 22}) {
      const uint64_t local = Number(header, at, 4);
      agrees = agrees && (local == size || local == zip::kMax32);
    }
  }
  if (!agrees)
    return error("has a local header that the directory contradicts");
  const int64_t payload =
      name_end + static_cast<int64_t>(Number(header, 28, 2));
  if (payload > limit || record.size_bytes > limit - payload) {
    return error("overlaps what follows it");
  }
  return ZipEntry{.name = record.name,
                  .payload = {.offset_bytes = range_.offset_bytes + payload,
                              .num_bytes = record.size_bytes},
                  .crc32 = record.crc32};
}

}  // namespace

absl::StatusOr<std::vector<ZipEntry>> ReadZipDirectory(const ckpt::File& file,
                                                       FileRange range) {
  return Reader(file, range).Run();
}

}  // namespace shardshift::reshard
