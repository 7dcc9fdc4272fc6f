// The HDF5 structure of an index file, for people's tools.
//   /tensors/<name>/<role>: a view of the whole tensor over the part files;
//     0-d and empty tensors, of which HDF5 has no views, with their values
//   /state, /record: the JSON texts
//   /shardshift_table
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_INDEX_FILE_H_
#define SHARDSHIFT_CKPT_HDF5_INDEX_FILE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "ckpt/format/table.h"
#include "ckpt/hdf5/part_file.h"

namespace shardshift::ckpt {

// Above this many fragments a new checkpoint's index has no /tensors: the views
// would take longer to write than the checkpoint.
inline constexpr int64_t kMaxViewedFragments = 200'000;

// Lays out the file, with room for the encoded table. Errors call it `path`.
// scalars: the bytes of each 0-d tensor, by index into table.tensors. There
// are /tensors for up to max_viewed_fragments.
// REQUIRES: CheckIndexTable(table).
absl::StatusOr<FileLayout> LayOutIndexFile(
    const std::string& path, const Table& table,
    const std::map<int64_t, std::string>& scalars,
    int64_t max_viewed_fragments);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_INDEX_FILE_H_
