// What a Megatron checkpoint that is to be written holds besides tensors: the
// arguments of a run on the target layout, the optimizer's hyper-parameters,
// the scheduler.
// Source: checkpoint-formats.md 3.4 to 3.7 and 4.2; megatron/training/
// checkpointing.py and megatron/core/optimizer at core_v0.16.1.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_TARGET_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_TARGET_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/dtype.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/format.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/megatron_iteration.h"
#include "reshard/formats/megatron_names.h"
#include "reshard/formats/pickle_writer.h"
#include "reshard/layout/content.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

struct MegatronTargetChoice {
  Format format = Format::kMegatron;  // or kTorchDist
  Layout layout;
  Content content = Content::kTraining;
  int64_t iteration = 0;
  // Of the weights; else that of the run.
  std::optional<ckpt::DType> dtype = std::nullopt;
};

struct MegatronTarget {
  // Of the target: the padded vocabulary too is that of its layout.
  MegatronArgs args;
  LayerStyle style;
  ckpt::DType weight_dtype = ckpt::DType::kBF16;
  Content content = Content::kTraining;
  // As PickleToJson has them.
  std::vector<nlohmann::json> groups;  // of parameters, without these
  nlohmann::json scheduler;
  nlohmann::json floating_point_operations;
  int64_t optimizer_step = 0;
  std::vector<std::string> left_out;  // of the source, what has no home there

  std::string IterationFolder() const { return IterationName(args.iteration); }
  // What the tracker file says.
  std::string Tracker() const;

  // args, checkpoint_version and so on; not the model, not the optimizer.
  absl::StatusOr<PyValue::Attributes> Common(int64_t rank) const;
};

// A group of parameters: those that decay or those that do not, of the experts
// where these have an optimizer of their own, else of all. A dict of its
// hyper-parameters, to which its parameters can be added.
absl::StatusOr<PyValue::Attributes> GroupOf(const MegatronTarget& target,
                                            bool decays, bool experts);

// Errors: FailedPrecondition for a model that Megatron's arguments cannot
// describe, naming what differs, and for groups of parameters that would become
// one; as Validate for the layout.
absl::StatusOr<MegatronTarget> PlanMegatronTarget(
    const CheckpointState& state, const MegatronTargetChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_TARGET_H_
