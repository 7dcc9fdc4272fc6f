// The HDF5 structure of a part file, for people's tools.
//   /fragments/<tensor>/<role>/<start, joined by '_'; "scalar" for 0-d>
//   /shardshift_table
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_PART_FILE_H_
#define SHARDSHIFT_CKPT_HDF5_PART_FILE_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "ckpt/format/table.h"

namespace shardshift::ckpt {

inline constexpr char kTableDataset[] = "/shardshift_table";

// Where our own bytes go in a file that the library has laid out.
struct FileLayout {
  int64_t file_bytes = 0;
  int64_t table_offset_bytes = 0;
};

// The path of a fragment's dataset.
std::string FragmentDataset(const Tensor& tensor, const Box& box);

// Creates `path` with a dataset for each fragment of `table`, laid out in the
// order of `order` (indices into table.fragments), and room for the encoded
// table. Sets the offset_bytes of each fragment.
absl::StatusOr<FileLayout> CreatePartFile(const std::string& path,
                                          std::span<const int64_t> order,
                                          Table& table);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_PART_FILE_H_
