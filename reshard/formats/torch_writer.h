// A file for torch.load: where each storage goes is known before there is a
// value, so that they can be written in any order, in pieces, by many.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_WRITER_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "reshard/formats/pickle_writer.h"
#include "reshard/formats/zip.h"
#include "reshard/formats/zip_layout.h"

namespace shardshift::reshard {

// The file's plan. Offsets are from its beginning, which need not be that of
// a file on disk.
class TorchFileLayout {
 public:
  int64_t total_bytes() const { return zip_.total_bytes(); }
  size_t num_storages() const { return num_storages_; }
  // Where the bytes of a storage go: little-endian, nothing else.
  FileRange Storage(size_t storage) const;

  // Some bytes, and where they go.
  struct Piece {
    int64_t offset_bytes = 0;
    std::string bytes;
  };
  // All of the file but what is in storages, whose CRC-32s these are.
  std::vector<Piece> Rest(std::span<const uint32_t> storage_crcs) const;

  // The file, for a small one: `storages` has the bytes of each.
  std::string Bytes(std::span<const std::string> storages) const;

 private:
  friend class TorchFileBuilder;
  // The entries: data.pkl, byteorder, the storages, version.
  static constexpr size_t kFirstStorage = 2;

  ZipLayout zip_;
  std::string pickle_;
  size_t num_storages_ = 0;
};

// Storages first, then tensors in a tree of values, then the layout.
class TorchFileBuilder {
 public:
  // The folder within the archive: torch.save has the file's name without its
  // last extension. REQUIRES: not empty, no '/'.
  explicit TorchFileBuilder(absl::string_view folder = "archive")
      : folder_(folder) {}

  // Gives its number, from 0. REQUIRES: num_elements >= 0.
  size_t AddStorage(ckpt::DType dtype, int64_t num_elements);

  // A view of a storage: of `shape` from its element `offset` on, by default
  // dense and from the first. REQUIRES: the storage holds it.
  PyValue Tensor(size_t storage, const ckpt::Shape& shape) const;
  PyValue Tensor(size_t storage, const ckpt::Shape& shape,
                 const ckpt::Shape& strides, int64_t offset) const;

  TorchFileLayout Layout(const PyValue& root) const;

 private:
  struct Storage {
    int64_t num_elements = 0;
    ckpt::DType dtype = ckpt::DType::kF32;
  };

  std::string folder_;
  std::vector<Storage> storages_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_WRITER_H_
