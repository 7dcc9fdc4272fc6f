// A file driver of libhdf5 whose file is a FileImage: the library lays out a
// file, without one. Layout and bytes are those of the library's own driver of
// plain files.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_MEMORY_DRIVER_H_
#define SHARDSHIFT_CKPT_HDF5_MEMORY_DRIVER_H_

#include <cstdint>
#include <memory>

#include "ckpt/format/file_image.h"
#include "ckpt/hdf5/handle.h"

namespace shardshift::ckpt {

// What the library writes of datasets' bytes, which are the image's like all
// else while `are_kept`. Changes with each such write.
struct RawWrites {
  bool are_kept = true;
  int64_t last_offset_bytes = 0;
};

// Makes the file that H5Fcreate creates with the access properties `list` be
// `image`, which the library shares until it has closed the file, as it does
// `raw`. The list keeps the addresses of both and is good for that one call.
// False if the library fails. REQUIRES: an Hdf5Lock is held.
bool UseMemoryDriver(const Handle& list,
                     const std::shared_ptr<FileImage>& image,
                     const std::shared_ptr<RawWrites>& raw);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_MEMORY_DRIVER_H_
