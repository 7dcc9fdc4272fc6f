// A file driver of libhdf5 whose file is a FileImage: the library lays out a
// file, without one. Layout and bytes are those of the library's own driver of
// plain files.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_MEMORY_DRIVER_H_
#define SHARDSHIFT_CKPT_HDF5_MEMORY_DRIVER_H_

#include <memory>

#include "ckpt/format/file_image.h"
#include "ckpt/hdf5/handle.h"

namespace shardshift::ckpt {

// Makes the file that H5Fcreate creates with the access properties `list` be
// `image`, which the library shares until it has closed the file. The list
// keeps the address of `image` and is good for that one call. False if the
// library fails. REQUIRES: an Hdf5Lock is held.
bool UseMemoryDriver(const Handle& list,
                     const std::shared_ptr<FileImage>& image);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_MEMORY_DRIVER_H_
