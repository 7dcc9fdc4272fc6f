// Lays out one HDF5 file in memory: the same calls give the same bytes,
// whatever the time, the heap or other threads.
// Files have a user block, the page file-space strategy with 4 KiB pages, no
// time stamps; every dataset is contiguous, allocated at once and not filled,
// or a list of compressed chunks, so that its bytes can be written past the
// library.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_FILE_BUILDER_H_
#define SHARDSHIFT_CKPT_HDF5_FILE_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/format/file_image.h"
#include "ckpt/hdf5/handle.h"
#include "ckpt/hdf5/memory_driver.h"

namespace shardshift::ckpt {

// A dataset of another file that is one box of a view.
struct ViewSource {
  std::string file;  // relative to the view's own file
  std::string dataset;
  Shape shape;  // of the dataset, whose elements fill the box in their order
  Box box;
};

// What a fragment's dataset says about itself.
struct FragmentLabel {
  std::string tensor;
  std::string role;
  DType dtype;
  Shape shape;
  Shape start;
};

// Paths of datasets are absolute; the groups above them are made as needed.
class FileBuilder {
 public:
  // Errors call the file `path`; nothing is opened there.
  // FailedPrecondition if the HDF5 library is not the one compiled against.
  static absl::StatusOr<std::unique_ptr<FileBuilder>> Create(
      const std::string& path);
  ~FileBuilder();

  // Gives the file offset of the dataset's bytes; 0 if it has none.
  absl::StatusOr<int64_t> AddFragment(const std::string& dataset,
                                      const FragmentLabel& label,
                                      const Shape& extent);
  // The elements of the fragment in a row, in chunks of chunk_elements that
  // have been through the filters shuffle and zstd. Chunks come by AddChunk.
  absl::Status AddCompressedFragment(const std::string& dataset,
                                     const FragmentLabel& label,
                                     const Shape& extent,
                                     int64_t chunk_elements);
  // Gives the chunk from element first_element on a place for `stored`, whose
  // bytes are not looked at; gives its file offset. Places follow from the
  // order of the calls. REQUIRES: an AddCompressedFragment of `dataset`, whose
  // chunk this is.
  absl::StatusOr<int64_t> AddChunk(const std::string& dataset,
                                   int64_t first_element,
                                   std::span<const std::byte> stored);
  // A dataset of num_bytes > 0 bytes. Gives their file offset.
  absl::StatusOr<int64_t> AddBytes(const std::string& dataset,
                                   int64_t num_bytes);
  absl::Status AddText(const std::string& dataset, absl::string_view text);
  // A whole tensor with its values.
  absl::Status AddTensor(const std::string& dataset, DType dtype,
                         const Shape& shape, std::span<const std::byte> bytes);
  // A virtual dataset. REQUIRES: shape is neither 0-d nor empty.
  absl::Status AddView(const std::string& dataset, DType dtype,
                       const Shape& shape,
                       const std::vector<ViewSource>& sources);

  // Bytes that the file has so far; Finish may add pages.
  absl::StatusOr<int64_t> SizeSoFar() const;

  // Gives the file, whose datasets of fragments and bytes are still zeros.
  // Call once, last.
  absl::StatusOr<FileImage> Finish();

 private:
  FileBuilder(std::string path, std::shared_ptr<FileImage> image,
              std::shared_ptr<RawWrites> raw, Handle file);

  absl::Status AddGroupsOf(const std::string& dataset);
  absl::StatusOr<Handle> AddDataset(const std::string& dataset,
                                    const Handle& type, const Handle& space,
                                    const Handle& properties);

  std::string path_;
  std::shared_ptr<FileImage> image_;
  std::shared_ptr<RawWrites> raw_;
  Handle file_;
  std::set<std::string> groups_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_FILE_BUILDER_H_
