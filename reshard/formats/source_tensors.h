// The tensors of a foreign checkpoint as it stores them: under keys of its own,
// each in one or more dense chunks. What every format's reader gives.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_SOURCE_TENSORS_H_
#define SHARDSHIFT_RESHARD_FORMATS_SOURCE_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/foreign_files.h"
#include "reshard/formats/storage_check.h"
#include "reshard/formats/stored_tensor.h"
#include "reshard/formats/torch_file.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// A box of a stored tensor that lies in a file, as a ForeignPlace tells.
struct SourceChunk {
  ckpt::Box box;
  int64_t file = 0;  // index into SourceTensors::files
  int64_t offset_bytes = 0;
  int64_t column_pitch = 0;
};

struct SourceTensor {
  std::string key;
  ckpt::DType dtype = ckpt::DType::kF32;
  ckpt::Shape shape;
  std::vector<SourceChunk> chunks;
};

struct SourceFile {
  std::string path;
  int64_t num_bytes = 0;
};

struct SourceTensors {
  std::vector<SourceFile> files;
  std::vector<SourceTensor> tensors;  // any order; keys differ
  std::vector<StorageCheck> checks;
};

// All of a tensor that lies in file `file`.
// Errors: Unimplemented for values with gaps between them.
absl::StatusOr<SourceChunk> PlaceTensor(const TorchTensor& tensor,
                                        int64_t file);

// Where a piece lies in a file that has the stored tensor at byte 0.
ckpt::ForeignPlace PlaceInFile(const StoredTensor& stored, const Piece& piece,
                               int64_t item_size);

// Adds the files to `builder`, which has none.
void AddFiles(const SourceTensors& source, ckpt::ForeignFilesBuilder& builder);

// Adds the pieces of logical tensors that a stored tensor holds, under `role`.
// Chunks may lie row by row or column by column, and so may what is stored
// transposed.
// REQUIRES: `stored` and `source` have one shape. Errors: as
// ForeignFilesBuilder::Add; Unimplemented for chunks column by column that have
// gaps between the columns where rows are wanted, or of no matrix.
absl::Status AddPieces(const StoredTensor& stored, const SourceTensor& source,
                       const std::vector<LogicalTensor>& tensors,
                       const std::string& role,
                       ckpt::ForeignFilesBuilder& builder);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_SOURCE_TENSORS_H_
