// The part of ZipArchive::Read() that finds the entries.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_ZIP_DIRECTORY_H_
#define SHARDSHIFT_RESHARD_FORMATS_ZIP_DIRECTORY_H_

#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/io/file.h"
#include "reshard/formats/zip.h"

namespace shardshift::reshard {

// By place in the file; names may still be there twice. Errors: as
// ZipArchive::Read(). REQUIRES: the range lies in the file.
absl::StatusOr<std::vector<ZipEntry>> ReadZipDirectory(const ckpt::File& file,
                                                       FileRange range);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_ZIP_DIRECTORY_H_
