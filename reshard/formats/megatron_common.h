// What a Megatron checkpoint holds besides tensors and arguments: kept as JSON,
// so that another one can be written from it.
// Source: checkpoint-formats.md 3.4, 3.6 and 4.2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_COMMON_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_COMMON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/status.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/pickle_value.h"

namespace shardshift::reshard {

class MegatronCommon {
 public:
  // The scheduler's state and counters, from the root of a file or of the
  // common state.
  absl::Status CollectCommon(const PickleValue& common);

  // The hyper-parameters of every group of parameters below `optimizer`, those
  // that are the same on all ranks once.
  absl::Status CollectGroups(const PickleValue& optimizer);

  // The state of a checkpoint of ours, as far as these and the arguments tell
  // it. `optimizer_step`: how many steps the optimizer made, if it is there. Of
  // more than there were iterations, as after fine-tuning, the skipped ones are
  // negative.
  nlohmann::json State(const MegatronArgs& args,
                       std::optional<int64_t> optimizer_step) const;

 private:
  nlohmann::json common_ = nlohmann::json::object();
  nlohmann::json groups_ = nlohmann::json::array();
};

// What tells a group from the others of a run: wd_mult, lr_mult,
// is_expert_parallel and is_decoupled_lr. Null for one that is no group.
nlohmann::json GroupIdentity(const nlohmann::json& group);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_COMMON_H_
