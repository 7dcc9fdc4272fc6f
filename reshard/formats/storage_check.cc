// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/storage_check.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/io/worker_pool.h"

namespace shardshift::reshard {
namespace {

absl::Status Check(const StorageCheck& check) {
  SS_ASSIGN_OR_RETURN(const ckpt::File file,
                      ckpt::File::OpenForRead(check.path));
  SS_ASSIGN_OR_RETURN(ckpt::StagingBuffer buffer, ckpt::StagingBuffer::Take());
  Crc32 crc;
  for (int64_t offset = check.range.offset_bytes;
       offset < check.range.end_bytes();) {
    const int64_t count =
        std::min(std::ssize(buffer.bytes()), check.range.end_bytes() - offset);
    const std::span<std::byte> bytes = buffer.bytes().first(count);
    SS_RETURN_IF_ERROR(file.ReadAt(offset, bytes));
    crc.Update(bytes);
    offset += count;
  }
  if (crc.value() == check.crc32) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      check.path, ": the ", check.range.num_bytes, " bytes at byte ",
      check.range.offset_bytes, " of the file: CRC-32 is ", crc.value(),
      ", the archive says ", check.crc32));
}

}  // namespace

StorageCheck CheckOf(const std::string& path, const TorchTensor& tensor) {
  return {path, tensor.storage, tensor.storage_crc32};
}

absl::Status CheckStorages(std::vector<StorageCheck> checks) {
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
  return ckpt::WorkerPool::Default().Run(
      std::ssize(checks), [&checks](int64_t i) { return Check(checks[i]); });
}

}  // namespace shardshift::reshard
