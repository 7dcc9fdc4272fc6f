// What torch.save wrote: a zip with a pickle and, for each storage, its bytes.
// Tensors are views of storages, and are found where they lie: nothing here
// reads their values but ReadTensor().
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_FILE_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/io/file.h"
#include "reshard/formats/pickle.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/zip.h"

namespace shardshift::reshard {

// Element `i` lies at offset_bytes + sum(i[d] * strides[d]) * item size of the
// file, within `storage`. Little-endian.
struct TorchTensor {
  ckpt::Shape shape;
  ckpt::Shape strides;  // in elements, none below zero
  int64_t offset_bytes = 0;
  // Tensors that share a storage have its key and its place in common.
  std::string storage_key;
  FileRange storage;           // a multiple of the item size
  uint32_t storage_crc32 = 0;  // not checked
  ckpt::DType dtype = ckpt::DType::kF32;

  // Whether the elements follow one another in row-major order. True if there
  // is none.
  bool IsDense() const;
  int64_t num_bytes() const {
    return ckpt::NumElements(shape) * ckpt::ItemSize(dtype);
  }
};

// Thread-safe once read.
class TorchFile {
 public:
  // Of the file, or of the part of it that `range` is. Reads the directory and
  // the pickle, whose CRC it checks.
  // Errors: those of ZipArchive::Read() and Pickle::Parse(), with the path;
  // DataLoss if it has no pickle or no version; Unimplemented for big-endian
  // values, and for files of torch before 1.6.
  static absl::StatusOr<TorchFile> Read(const ckpt::File& file, FileRange range,
                                        const PickleOptions& options = {});
  static absl::StatusOr<TorchFile> Read(const ckpt::File& file,
                                        const PickleOptions& options = {});

  const Pickle& pickle() const { return *pickle_; }
  PickleValue root() const { return PickleValue(*pickle_); }

  // Whether it is meant to be a tensor: Tensor() may still refuse it.
  static bool IsTensor(const PickleValue& value);
  // A tensor, or a Parameter or another class around one, of this file's
  // pickle. Errors: DataLoss for what is none, or one that its storage does
  // not hold; Unimplemented for a dtype that cannot be kept.
  absl::StatusOr<TorchTensor> Tensor(const PickleValue& value) const;

  const std::string& path() const { return path_; }

 private:
  // How the parts of a view are called on.
  struct View;

  absl::StatusOr<TorchTensor> Resolve(const View& view) const;
  absl::Status SetStorage(const PickleValue& storage, bool typed,
                          TorchTensor& tensor) const;

  std::string path_;
  std::string prefix_;  // "archive/", before every name
  ZipArchive zip_;
  // Stays in place when the TorchFile moves, as values point to it.
  std::unique_ptr<const Pickle> pickle_;
};

// The values of a tensor as dense row-major bytes. Reads all of its storage,
// to check it. For small tensors.
// Errors: ResourceExhausted if either has more than `max_bytes`; DataLoss if
// the CRC is another.
absl::StatusOr<std::vector<std::byte>> ReadTensor(const ckpt::File& file,
                                                  const TorchTensor& tensor,
                                                  int64_t max_bytes);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_FILE_H_
