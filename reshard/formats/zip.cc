// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/zip.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/crc32.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/zip_directory.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

absl::Status CheckCrc(const ckpt::File& file, const ZipEntry& entry,
                      uint32_t found) {
  if (found == entry.crc32) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "%s: zip entry \"%s\" at byte %d has CRC-32 %08x, the archive says %08x: "
      "it is damaged",
      file.path(), entry.name, entry.payload.offset_bytes, found, entry.crc32));
}

}  // namespace

absl::Status CheckRange(const ckpt::File& file, FileRange range) {
  SS_ASSIGN_OR_RETURN(const int64_t file_bytes, file.Size());
  if (range.offset_bytes < 0 || range.num_bytes < 0 ||
      range.num_bytes > file_bytes ||
      range.offset_bytes > file_bytes - range.num_bytes) {
    return absl::DataLossError(
        absl::StrCat(file.path(), " has ", file_bytes, " bytes, expected ",
                     range.num_bytes, " at byte ", range.offset_bytes,
                     ": the file is cut, or the index is of another one"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadRange(const ckpt::File& file, FileRange range) {
  std::string bytes(range.num_bytes, '\0');
  SS_RETURN_IF_ERROR(file.ReadAt(range.offset_bytes,
                                 std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

absl::StatusOr<FileRange> WholeFile(const ckpt::File& file) {
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  return FileRange{.num_bytes = num_bytes};
}

absl::StatusOr<ZipArchive> ZipArchive::Read(const ckpt::File& file,
                                            FileRange range) {
  SS_RETURN_IF_ERROR(CheckRange(file, range));
  ZipArchive archive;
  SS_ASSIGN_OR_RETURN(archive.entries_, ReadZipDirectory(file, range));
  for (size_t i = 0; i < archive.entries_.size(); ++i) {
    const std::string& name = archive.entries_[i].name;
    if (!archive.by_name_.emplace(name, i).second) {
      return absl::DataLossError(absl::StrCat(
          file.path(), ": two zip entries are named \"", name, "\""));
    }
  }
  return archive;
}

const ZipEntry* ZipArchive::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

absl::StatusOr<std::string> ReadZipEntry(const ckpt::File& file,
                                         const ZipEntry& entry,
                                         int64_t max_bytes) {
  if (entry.payload.num_bytes > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        file.path(), ": zip entry \"", entry.name, "\" has ",
        entry.payload.num_bytes, " bytes, at most ", max_bytes, " are read"));
  }
  SS_ASSIGN_OR_RETURN(std::string bytes, ReadRange(file, entry.payload));
  SS_RETURN_IF_ERROR(
      CheckCrc(file, entry, ckpt::UpdateCrc32(0, ckpt::AsBytes(bytes))));
  return bytes;
}

absl::Status CheckZipEntry(const ckpt::File& file, const ZipEntry& entry) {
  std::vector<std::byte> piece(std::min(entry.payload.num_bytes, kPieceBytes));
  uint32_t crc = 0;
  for (int64_t done = 0; done < entry.payload.num_bytes;) {
    const auto bytes = std::span(piece).first(
        std::min(kPieceBytes, entry.payload.num_bytes - done));
    SS_RETURN_IF_ERROR(file.ReadAt(entry.payload.offset_bytes + done, bytes));
    crc = ckpt::UpdateCrc32(crc, bytes);
    done += std::ssize(bytes);
  }
  return CheckCrc(file, entry, crc);
}

}  // namespace shardshift::reshard
