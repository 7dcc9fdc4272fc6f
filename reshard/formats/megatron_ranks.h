// What the readers of Megatron's two formats have in common: the parameters of
// a model-parallel rank, and what becomes of all of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_RANKS_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_RANKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/foreign_files.h"
#include "reshard/formats/foreign_checkpoint.h"
#include "reshard/formats/format.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/megatron_common.h"
#include "reshard/formats/megatron_steps.h"
#include "reshard/layout/model_map.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

struct ModelRank {
  int64_t tensor = 0;
  int64_t pipeline = 0;
  int64_t expert = 0;
};

inline constexpr char kLegacyModelFile[] = "model_optim_rng.pt";
inline constexpr char kLegacyOptimizerFile[] = "distrib_optim.pt";

// "mp_rank_01_003": its folder in a legacy checkpoint.
std::string LegacyFolderName(const Layout& layout, const ModelRank& rank);

// The first of the ranks that hold this part of the model.
int64_t WriterOf(const Layout& layout, const ModelRank& rank);

// By chunk: the dense parameters, then those of the rank's experts.
std::vector<std::vector<Parameter>> ParametersOfRank(const ModelMap& map,
                                                     const ModelRank& rank);

// The checkpoint that `builder` has the tensors of, with state and record.
// Errors: as Build and OptimizerSteps::TheOne, naming `directory`.
absl::StatusOr<ForeignCheckpoint> FinishMegatron(
    const std::string& directory, Format format, const MegatronArgs& args,
    const MegatronCommon& common, const OptimizerSteps& steps, bool has_state,
    ckpt::ForeignFilesBuilder& builder);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_RANKS_H_
