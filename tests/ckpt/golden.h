// The golden checkpoint of format version 1: a description, expected.json, and
// the run directory that a writer made of it when the version was released.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_CKPT_GOLDEN_H_
#define SHARDSHIFT_TESTS_CKPT_GOLDEN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/format/table.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {

struct GoldenTensor {
  Tensor info;
  std::string fingerprint;  // as ToString prints it
  std::vector<std::byte> values;
  struct Piece {
    int64_t part = 0;
    Box box;
  };
  std::vector<Piece> pieces;
};

struct Golden {
  CheckpointId id;
  std::string record;
  std::string root_fingerprint;
  Codec codec = Codec::kNone;
  std::vector<GoldenTensor> tensors = {};  // ascending by (name, role)
};

// Errors: as ReadWholeFile; InvalidArgument for what is no description.
absl::StatusOr<Golden> ReadGolden(const std::string& path);

// Writes the checkpoint into the run directory.
absl::Status WriteGolden(const std::string& run_dir, const Golden& golden);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_TESTS_CKPT_GOLDEN_H_
