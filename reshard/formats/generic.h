// Checkpoints of any model: every tensor keeps the key under which it was
// stored, and nobody asks what it means.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_GENERIC_H_
#define SHARDSHIFT_RESHARD_FORMATS_GENERIC_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/foreign_files.h"
#include "reshard/formats/source_tensors.h"

namespace shardshift::reshard {

// The name and role that stand for a key, and back: `optim.state.<p>.<s>` is
// tensor <p>, role <s>, any other key a tensor's `weight`. What our names
// cannot hold is written %XX.
struct GenericName {
  std::string tensor;
  std::string role;

  bool operator==(const GenericName&) const = default;
};
GenericName NameOfKey(absl::string_view key);
std::string KeyOfName(const GenericName& name);

// All tensors under their keys. Errors: as ForeignFilesBuilder, naming the key.
absl::StatusOr<ckpt::ForeignFiles> GenericFiles(const std::string& path,
                                                const SourceTensors& source,
                                                int64_t step, std::string state,
                                                std::string record);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_GENERIC_H_
