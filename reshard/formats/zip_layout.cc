// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/zip_layout.h"

#include <algorithm>

#include "reshard/formats/zip_records.h"

namespace shardshift::reshard {
namespace {

// 4.5: the version that has 64-bit sizes. 2.0 else.
constexpr uint64_t kVersion64 = 45;
constexpr uint64_t kVersion = 20;
// 1980-01-01, the first day that zip knows: the same state gives the same
// bytes.
constexpr uint64_t kDate = 0x0021;

void Put(std::string& record, uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) {
    record.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
  }
}

uint64_t Unsigned(int64_t value) { return static_cast<uint64_t>(value); }
bool IsWide(int64_t value) { return Unsigned(value) >= zip::kMax32; }
uint64_t Narrow(int64_t value) {
  return std::min(Unsigned(value), zip::kMax32);
}

// The fields that a local header and a directory entry have in common.
void PutCommon(std::string& record, bool wide, uint32_t crc32,
               int64_t size_bytes, uint64_t name_bytes, uint64_t extra_bytes) {
  Put(record, wide ? kVersion64 : kVersion, 2);
  Put(record, zip::kUtf8Flag, 2);
  Put(record, 0, 2);  // stored
  Put(record, 0, 2);  // time of day
  Put(record, kDate, 2);
  Put(record, crc32, 4);
  Put(record, Narrow(size_bytes), 4);  // stored
  Put(record, Narrow(size_bytes), 4);
  Put(record, name_bytes, 2);
  Put(record, extra_bytes, 2);
}

// The sizes, twice, in the extra field of a local header.
int64_t LocalExtra64Bytes(int64_t size_bytes) {
  return IsWide(size_bytes) ? zip::kExtraHeaderBytes + 16 : 0;
}
int64_t CentralExtra64Bytes(int64_t size_bytes, int64_t header_bytes) {
  const int64_t fields =
      (IsWide(size_bytes) ? 16 : 0) + (IsWide(header_bytes) ? 8 : 0);
  return fields > 0 ? zip::kExtraHeaderBytes + fields : 0;
}

}  // namespace

size_t ZipLayout::Add(absl::string_view name, int64_t num_bytes) {
  const int64_t unpadded = end_bytes_ + zip::kLocalBytes + std::ssize(name) +
                           LocalExtra64Bytes(num_bytes) +
                           zip::kExtraHeaderBytes;
  const int64_t payload =
      (unpadded + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  entries_.push_back({.name = std::string(name),
                      .header_bytes = end_bytes_,
                      .payload_bytes = payload,
                      .size_bytes = num_bytes});
  end_bytes_ = payload + num_bytes;
  return entries_.size() - 1;
}

std::string ZipLayout::Header(size_t entry, uint32_t crc32) const {
  const auto& [name, header_bytes, payload_bytes, size_bytes] = entries_[entry];
  const int64_t header_size = payload_bytes - header_bytes;
  const int64_t extra_bytes = header_size - zip::kLocalBytes - std::ssize(name);
  std::string header;
  header.reserve(header_size);
  Put(header, zip::kLocalSignature, 4);
  PutCommon(header, IsWide(size_bytes), crc32, size_bytes, name.size(),
            Unsigned(extra_bytes));
  header += name;
  if (IsWide(size_bytes)) {
    Put(header, zip::kExtra64, 2);
    Put(header, 16, 2);
    Put(header, Unsigned(size_bytes), 8);
    Put(header, Unsigned(size_bytes), 8);
  }
  Put(header, zip::kExtraPadding, 2);
  const int64_t padding = header_size - std::ssize(header) - 2;
  Put(header, Unsigned(padding), 2);
  header.append(padding, 'Z');
  return header;
}

int64_t ZipLayout::DirectoryBytes() const {
  int64_t total = 0;
  for (const Entry& entry : entries_) {
    total += zip::kCentralBytes + std::ssize(entry.name) +
             CentralExtra64Bytes(entry.size_bytes, entry.header_bytes);
  }
  return total;
}

bool ZipLayout::NeedsEnd64(int64_t directory_bytes) const {
  return entries_.size() >= zip::kMax16 || IsWide(directory_bytes) ||
         IsWide(end_bytes_);
}

int64_t ZipLayout::total_bytes() const {
  const int64_t directory = DirectoryBytes();
  return end_bytes_ + directory + zip::kEndBytes +
         (NeedsEnd64(directory) ? zip::kEnd64Bytes + zip::kLocator64Bytes : 0);
}

std::string ZipLayout::End(std::span<const uint32_t> crcs) const {
  std::string end;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto& [name, header_bytes, payload_bytes, size_bytes] = entries_[i];
    const int64_t extra = CentralExtra64Bytes(size_bytes, header_bytes);
    Put(end, zip::kCentralSignature, 4);
    Put(end, extra > 0 ? kVersion64 : kVersion, 2);  // made by
    PutCommon(end, extra > 0, crcs[i], size_bytes, name.size(),
              Unsigned(extra));
    Put(end, 0, 2);  // comment
    Put(end, 0, 2);  // disk
    Put(end, 0, 2);  // internal attributes
    Put(end, 0, 4);  // external attributes
    Put(end, Narrow(header_bytes), 4);
    end += name;
    if (extra == 0) continue;
    Put(end, zip::kExtra64, 2);
    Put(end, Unsigned(extra - zip::kExtraHeaderBytes), 2);
    if (IsWide(size_bytes)) {
      Put(end, Unsigned(size_bytes), 8);
      Put(end, Unsigned(size_bytes), 8);
    }
    if (IsWide(header_bytes)) Put(end, Unsigned(header_bytes), 8);
  }
  const int64_t directory = std::ssize(end);
  const uint64_t count = entries_.size();
  if (NeedsEnd64(directory)) {
    Put(end, zip::kEnd64Signature, 4);
    Put(end, zip::kEnd64Bytes - 12, 8);
    Put(end, kVersion64, 2);
    Put(end, kVersion64, 2);
    Put(end, 0, 8);  // disks
    Put(end, count, 8);
    Put(end, count, 8);
    Put(end, Unsigned(directory), 8);
    Put(end, Unsigned(end_bytes_), 8);
    Put(end, zip::kLocator64Signature, 4);
    Put(end, 0, 4);
    Put(end, Unsigned(end_bytes_ + directory), 8);
    Put(end, 1, 4);  // disks in all
  }
  Put(end, zip::kEndSignature, 4);
  Put(end, 0, 4);  // disks
  Put(end, std::min(count, zip::kMax16), 2);
  Put(end, std::min(count, zip::kMax16), 2);
  Put(end, Narrow(directory), 4);
  Put(end, Narrow(end_bytes_), 4);
  Put(end, 0, 2);  // comment
  return end;
}

}  // namespace shardshift::reshard
