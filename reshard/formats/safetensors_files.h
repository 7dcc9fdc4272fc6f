// safetensors files as a source, and as what a copy is made of.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_SAFETENSORS_FILES_H_
#define SHARDSHIFT_RESHARD_FORMATS_SAFETENSORS_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/dtype.h"
#include "ckpt/foreign_writer.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/formats/stored_tensor.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// Adds a file and its tensors. Errors: as ReadSafetensorsHeader.
absl::Status AddSafetensorsFile(const std::string& path, SourceTensors& source);

// A tensor of a file that is to be written. Pieces are boxes of `tensors`.
struct SafetensorsEntry {
  StoredTensor stored;
  ckpt::DType dtype = ckpt::DType::kF32;
  std::string role;  // of its logical tensors
};

// What a file is made of: names in `entries` differ.
// Errors: as LayOutSafetensors.
absl::StatusOr<ckpt::ForeignFile> LayOutSafetensorsFile(
    const std::string& name, const std::vector<SafetensorsEntry>& entries,
    const std::vector<LogicalTensor>& tensors);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_SAFETENSORS_FILES_H_
