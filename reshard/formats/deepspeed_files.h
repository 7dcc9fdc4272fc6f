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

struct DeepSpeedFiles {
  std::string directory = {};
  // Paths, by data-parallel rank where `sharded`, else by model-parallel rank.
  std::vector<std::string> models = {};
  std::vector<std::string> optimizers =
      {};                // by data-parallel rank; may be none
  bool sharded = false;  // as ZeRO-3 has its model files
};

// Errors: NotFound if there are no model files; DataLoss for a rank that is
// missing, or there twice.
absl::StatusOr<DeepSpeedFiles> ListModelFiles(const std::string& directory);
// The optimizer's, too. Errors: the same; Unimplemented for pipeline and tensor
// parallelism and experts.
absl::StatusOr<DeepSpeedFiles> ListDeepSpeedFiles(const std::string& directory);

struct OpenedTorch {
  ckpt::File file;
  TorchFile torch;
  int64_t num_bytes = 0;
};
absl::StatusOr<OpenedTorch> OpenTorch(const std::string& path);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_FILES_H_
