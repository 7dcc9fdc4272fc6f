// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/storage_check.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/crc32.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/io/worker_pool.h"

namespace shardshift::reshard {
namespace {

using RangesByOffset = std::map<int64_t, ckpt::RangeCrc>;

// Goes on with the CRC-32 of what comes before bytes [begin, end) of a file.
absl::StatusOr<uint32_t> ReadCrc(const ckpt::File& file, int64_t begin,
                                 int64_t end, uint32_t crc) {
  SS_ASSIGN_OR_RETURN(ckpt::StagingBuffer buffer, ckpt::StagingBuffer::Take());
  while (begin < end) {
    const int64_t count = std::min(std::ssize(buffer.bytes()), end - begin);
    const std::span<std::byte> bytes = buffer.bytes().first(count);
    SS_RETURN_IF_ERROR(file.ReadAt(begin, bytes));
    crc = ckpt::UpdateCrc32(crc, bytes);
    begin += count;
  }
  return crc;
}

absl::Status Check(const StorageCheck& check, const RangesByOffset& known) {
  SS_ASSIGN_OR_RETURN(const ckpt::File file,
                      ckpt::File::OpenForRead(check.path));
  uint32_t crc = 0;
  int64_t position = check.range.offset_bytes;
  for (auto range = known.lower_bound(position);
       range != known.end() && range->first < check.range.end_bytes();
       ++range) {
    const int64_t end = range->first + range->second.num_bytes;
    if (range->first < position || end > check.range.end_bytes()) continue;
    SS_ASSIGN_OR_RETURN(crc, ReadCrc(file, position, range->first, crc));
    crc = ckpt::CombineCrc32(crc, range->second.crc32, range->second.num_bytes);
    position = end;
  }
  SS_ASSIGN_OR_RETURN(crc,
                      ReadCrc(file, position, check.range.end_bytes(), crc));
  if (crc == check.crc32) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      check.path, ": the ", check.range.num_bytes, " bytes at byte ",
      check.range.offset_bytes, " of the file: CRC-32 is ", crc,
      ", the archive says ", check.crc32));
}

absl::Status CheckReplica(const ReplicaCheck& check) {
  SS_ASSIGN_OR_RETURN(const ckpt::File a, ckpt::File::OpenForRead(check.path));
  SS_ASSIGN_OR_RETURN(const ckpt::File b,
                      ckpt::File::OpenForRead(check.other_path));
  SS_ASSIGN_OR_RETURN(ckpt::StagingBuffer of_a, ckpt::StagingBuffer::Take());
  SS_ASSIGN_OR_RETURN(ckpt::StagingBuffer of_b, ckpt::StagingBuffer::Take());
  for (int64_t at = 0; at < check.range.num_bytes;) {
    const int64_t count =
        std::min(std::ssize(of_a.bytes()), check.range.num_bytes - at);
    const auto bytes_a = of_a.bytes().first(count);
    const auto bytes_b = of_b.bytes().first(count);
    SS_RETURN_IF_ERROR(a.ReadAt(check.range.offset_bytes + at, bytes_a));
    SS_RETURN_IF_ERROR(b.ReadAt(check.other_range.offset_bytes + at, bytes_b));
    if (!std::ranges::equal(bytes_a, bytes_b)) {
      return absl::DataLossError(
          absl::StrCat(check.name, " differs between ", check.path, " and ",
                       check.other_path,
                       ", which hold copies of it: which is right, the "
                       "checkpoint does not tell"));
    }
    at += count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReplicas(const std::vector<ReplicaCheck>& checks) {
  return ckpt::WorkerPool::Default().Run(
      std::ssize(checks),
      [&checks](int64_t i) { return CheckReplica(checks[i]); });
}

StorageCheck CheckOf(const std::string& path, const TorchTensor& tensor) {
  return {path, tensor.storage, tensor.storage_crc32};
}

void AddKnown(const ckpt::Reader& reader, KnownCrcs& known) {
  if (reader.crcs() == nullptr) return;
  for (int64_t part = 0; part < std::ssize(reader.table().parts); ++part) {
    known[reader.PathOf(part)].merge(reader.crcs()->Of(part));
  }
}

absl::Status CheckStorages(std::vector<StorageCheck> checks,
                           const KnownCrcs& known) {
  const auto place = [](const StorageCheck& check) {
    return std::tie(check.path, check.range.offset_bytes);
  };
  std::sort(checks.begin(), checks.end(),
            [&place](const StorageCheck& a, const StorageCheck& b) {
              return place(a) < place(b);
            });
  checks.erase(
      std::unique(checks.begin(), checks.end(),
                  [&place](const StorageCheck& a, const StorageCheck& b) {
                    return place(a) == place(b);
                  }),
      checks.end());
  return ckpt::WorkerPool::Default().Run(std::ssize(checks), [&](int64_t i) {
    static const auto& nothing = *new RangesByOffset();
    const auto ranges = known.find(checks[i].path);
    return Check(checks[i], ranges == known.end() ? nothing : ranges->second);
  });
}

}  // namespace shardshift::reshard
