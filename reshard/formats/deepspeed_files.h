// The files of a DeepSpeed checkpoint, by rank.
// Source: distributed-optimizer.md 4.1 and 4.4.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_FILES_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/io/file.h"
#include "reshard/formats/torch_file.h"

namespace shardshift::reshard {

// The folder of a tag: the one that file `latest` names (`latest` or
// `latest_universal`), or `path` itself if there is no such file.
// Errors: DataLoss for a text that is no name of a folder.
absl::StatusOr<std::string> DeepSpeedTag(const std::string& path,
                                         absl::string_view latest);

// The paths of a model-parallel rank.
struct DeepSpeedFiles {
  std::string directory = {};
  std::vector<std::string> models = {};  // by data-parallel rank, or one
  std::vector<std::string> optimizers =
      {};                // by data-parallel rank; may be none
  bool sharded = false;  // by rank, as ZeRO-3 has its model files
};

// The weights of a pipeline's layer.
struct DeepSpeedLayer {
  int64_t number = 0;
  std::vector<std::string> paths = {};  // by tensor-parallel rank
};

struct DeepSpeedFolder {
  std::string directory = {};
  // Tensor-parallel ranks of the first pipeline stage, then of the next.
  std::vector<DeepSpeedFiles> ranks = {};
  std::vector<DeepSpeedLayer> layers = {};  // ascending; layers may have none
};

// Errors: NotFound if there are no model files; DataLoss for a rank that is
// missing, or there twice, or has not as many files as others; Unimplemented
// for experts.
absl::StatusOr<DeepSpeedFolder> ListDeepSpeedFiles(
    const std::string& directory);

struct OpenedTorch {
  ckpt::File file;
  TorchFile torch;
  int64_t num_bytes = 0;
};
absl::StatusOr<OpenedTorch> OpenTorch(const std::string& path);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_FILES_H_
