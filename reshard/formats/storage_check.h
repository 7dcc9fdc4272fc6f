// The checksums of foreign files: torch.save keeps a CRC-32 of each storage.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_STORAGE_CHECK_H_
#define SHARDSHIFT_RESHARD_FORMATS_STORAGE_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reshard/formats/torch_file.h"
#include "reshard/formats/zip.h"

namespace shardshift::reshard {

struct StorageCheck {
  std::string path;
  FileRange range;
  uint32_t crc32 = 0;
};

StorageCheck CheckOf(const std::string& path, const TorchTensor& tensor);

// Reads every storage, each once, on the default pool.
// Errors: DataLoss naming the file and the bytes whose checksum is another.
absl::Status CheckStorages(std::vector<StorageCheck> checks);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_STORAGE_CHECK_H_
