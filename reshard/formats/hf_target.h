// What a model of ours is to Hugging Face, whatever files it is written to.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_TARGET_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_TARGET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/dtype.h"
#include "ckpt/reader.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/export.h"
#include "reshard/formats/hf_names.h"
#include "reshard/formats/stored_tensor.h"
#include "reshard/layout/content.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

struct HfTarget {
  std::optional<std::string> config;  // the text that it came with
  HfNaming naming;
  std::vector<StoredTensor> stored;
};

enum class HfForm : uint8_t {
  // Named as they were in the folder that the checkpoint came from, or else as
  // save_pretrained names them.
  kFiles,
  // As the modules of transformers 5 have them, which is what FSDP saves.
  kModules,
};

// Errors: as FamilyFor, ParseHfConfig and HfTensors; FailedPrecondition if the
// state has the config.json of another model.
absl::StatusOr<HfTarget> PlanHfTarget(const CheckpointState& state,
                                      HfForm form);

// Adds to `plan` that the weights are exported, under role `weight`, and gives
// the dtype of each of target.stored: `dtype`, or that of the source, which is
// F32 if it has masters.
// REQUIRES: CheckStored of the content. Errors: FailedPrecondition for a stored
// tensor that would be of two; as ckpt::CheckConversion.
absl::StatusOr<std::vector<ckpt::DType>> AddHfWeights(
    const ckpt::Reader& source, Content content,
    const std::vector<LogicalTensor>& tensors, const HfTarget& target,
    std::optional<ckpt::DType> dtype, ExportPlan& plan);

// The config.json as it was, but for the dtype if that is another now; or a new
// one. Errors: InvalidArgument for a dtype that transformers does not load.
absl::StatusOr<std::string> HfConfigText(const HfTarget& target,
                                         const ModelConfig& model,
                                         ckpt::DType weights);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_TARGET_H_
