// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/deepspeed_model.h"
#include "reshard/formats/deepspeed_plain.h"
#include "reshard/formats/deepspeed_zero.h"

namespace shardshift::reshard {

absl::StatusOr<ForeignCheckpoint> ReadDeepSpeed(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const std::string directory,
                      DeepSpeedTag(path, "latest"));
  SS_ASSIGN_OR_RETURN(const DeepSpeedFiles files,
                      ListDeepSpeedFiles(directory));
  SS_ASSIGN_OR_RETURN(const OpenedTorch source,
                      OpenTorch(files.models.front()));
  SS_ASSIGN_OR_RETURN(const DeepSpeedModel model, ReadDeepSpeedModel(source));
  DeepSpeedContents contents;
  const int64_t file =
      contents.tensors.AddFile(source.torch.path(), source.num_bytes);
  if (!files.optimizers.empty()) {
    SS_RETURN_IF_ERROR(AddZero(files, model, file, contents));
    if (!files.sharded) {
      contents.left_out.emplace_back(
          "weights of the model, which are the rounded masters");
    }
  } else if (files.sharded || model.param_shapes.has_value()) {
    return absl::DataLossError(absl::StrCat(
        directory,
        " has no *zero_pp_rank_*_optim_states.pt, expected one for "
        "each rank beside ",
        source.torch.path()));
  } else {
    SS_RETURN_IF_ERROR(AddPlain(source, model, file, contents));
  }
  return Finish(directory, "deepspeed", model, std::move(contents));
}

}  // namespace shardshift::reshard
