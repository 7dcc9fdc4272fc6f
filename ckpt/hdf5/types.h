// Our dtypes as HDF5 datatypes, chosen so that h5py shows true values.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_TYPES_H_
#define SHARDSHIFT_CKPT_HDF5_TYPES_H_

#include <cstdint>

#include "ckpt/core/dtype.h"
#include "ckpt/hdf5/handle.h"

namespace shardshift::ckpt {

// The datatype on disk: F16 and BF16 are floats of their own field widths,
// C64 is a compound {r, i} and BOOL an enum {FALSE, TRUE} as h5py writes
// them; the F8 kinds are bytes. Not ok() if the library fails.
Handle FileType(DType dtype);

// UTF-8 text of exactly num_bytes. REQUIRES: num_bytes > 0.
Handle TextType(int64_t num_bytes);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_TYPES_H_
