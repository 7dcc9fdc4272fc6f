// The HDF5 structure of a part file, for people's tools.
//   /fragments/<tensor> <role> <start, joined by '_'; "scalar" for 0-d>
//     a fragment with a codec is a row of its elements, with "extent" besides
//     the attributes of the others
//   /shardshift_table
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_PART_FILE_H_
#define SHARDSHIFT_CKPT_HDF5_PART_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "ckpt/format/file_image.h"
#include "ckpt/format/table.h"
#include "ckpt/hdf5/file_builder.h"

namespace shardshift::ckpt {

inline constexpr char kTableDataset[] = "/shardshift_table";

// A file that the library has laid out, without our own bytes.
struct FileLayout {
  FileImage image;
  int64_t table_offset_bytes = 0;
};

// The path of a fragment's dataset.
std::string FragmentDataset(const Tensor& tensor, const Box& box);

// The shape of that dataset.
Shape FragmentDatasetShape(const Fragment& fragment);

// Lays out one part file. Not thread-safe.
class PartLayout {
 public:
  // A file with a dataset for each fragment of `table`, in the order of `order`
  // (indices into table.fragments). Sets the places of all blocks without a
  // codec. Errors call the file `path`.
  static absl::StatusOr<PartLayout> Create(const std::string& path,
                                           std::span<const int64_t> order,
                                           Table& table);

  // Places a block of a fragment with a codec, which is `stored`; the order of
  // the calls decides where. Call once for each.
  absl::Status PlaceBlock(const Table& table, Fragment& fragment, int64_t block,
                          std::span<const std::byte> stored);

  // Bytes that the file has so far; Finish may add pages.
  absl::StatusOr<int64_t> SizeSoFar() const { return builder_->SizeSoFar(); }

  // Makes room for the encoded table. Call once, last.
  absl::StatusOr<FileLayout> Finish(int64_t table_bytes);

 private:
  explicit PartLayout(std::unique_ptr<FileBuilder> builder)
      : builder_(std::move(builder)) {}
  absl::Status AddFragment(const Table& table, Fragment& fragment);

  std::unique_ptr<FileBuilder> builder_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_PART_FILE_H_
