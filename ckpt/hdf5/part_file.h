// The HDF5 structure of a part file, for people's tools.
//   /fragments/<tensor> <role> <start, joined by '_'; "scalar" for 0-d>
//   /shardshift_table
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_PART_FILE_H_
#define SHARDSHIFT_CKPT_HDF5_PART_FILE_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "ckpt/format/file_image.h"
#include "ckpt/format/table.h"

namespace shardshift::ckpt {

inline constexpr char kTableDataset[] = "/shardshift_table";

// A file that the library has laid out, without our own bytes.
struct FileLayout {
  FileImage image;
  int64_t table_offset_bytes = 0;
};

// The path of a fragment's dataset.
std::string FragmentDataset(const Tensor& tensor, const Box& box);

// Lays out a file with a dataset for each fragment of `table`, in the order of
// `order` (indices into table.fragments), and room for the encoded table. Sets
// the places of all blocks. Errors call the file `path`.
absl::StatusOr<FileLayout> LayOutPartFile(const std::string& path,
                                          std::span<const int64_t> order,
                                          Table& table);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_PART_FILE_H_
