// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_checkpoint.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/generic.h"
#include "reshard/formats/safetensors_files.h"

namespace shardshift::reshard {

absl::StatusOr<ForeignCheckpoint> ReadHuggingFace(const std::string& path,
                                                  bool generic) {
  SourceTensors source;
  SS_RETURN_IF_ERROR(AddSafetensorsFile(path, source));
  if (!generic) return absl::FailedPreconditionError("--generic");
  const nlohmann::json state = {{"generic", {{"format", "safetensors"}}}};
  ForeignCheckpoint result;
  SS_ASSIGN_OR_RETURN(result.files, GenericFiles(path, source, /*step=*/0,
                                                 StateText(state), "{}"));
  return result;
}

}  // namespace shardshift::reshard
