// The checksums of foreign files: torch.save keeps a CRC-32 of each storage.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_STORAGE_CHECK_H_
#define SHARDSHIFT_RESHARD_FORMATS_STORAGE_CHECK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/range_crcs.h"
#include "ckpt/reader.h"
#include "reshard/formats/torch_file.h"
#include "reshard/formats/zip.h"

namespace shardshift::reshard {

struct StorageCheck {
  std::string path;
  FileRange range;
  uint32_t crc32 = 0;
};

StorageCheck CheckOf(const std::string& path, const TorchTensor& tensor);

// Bytes that two ranks hold of one thing, and must be equal.
struct ReplicaCheck {
  std::string name;  // of the thing
  std::string path;
  FileRange range;
  std::string other_path;
  FileRange other_range;  // of the same size
};

// Reads both of each. Errors: DataLoss naming the thing and the two files.
absl::Status CheckReplicas(const std::vector<ReplicaCheck>& checks);

// CRC-32s of what of some files was read, by path and offset.
using KnownCrcs = std::map<std::string, std::map<int64_t, ckpt::RangeCrc>>;
void AddKnown(const ckpt::Reader& reader, KnownCrcs& known);

// Checks every storage, each once, on the default pool; reads what is not
// known. Errors: DataLoss naming the file and the bytes whose checksum is
// another.
absl::Status CheckStorages(std::vector<StorageCheck> checks,
                           const KnownCrcs& known);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_STORAGE_CHECK_H_
