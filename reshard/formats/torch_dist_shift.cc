// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_shift.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/flat_buckets.h"
#include "reshard/formats/weights_check.h"

namespace shardshift::reshard {
void AddTensorsAtRisk(const MegatronArgs& args, bool is_first_stage,
                      int64_t chunk, bool experts,
                      const std::vector<const ModuleParameter*>& parameters,
                      const std::vector<LogicalTensor>& tensors,
                      absl::btree_set<std::string>& at_risk) {
  const FlatBuffer flat =
      LayOutFlat(args, {is_first_stage, chunk, experts}, parameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    int64_t padding = 0;
    const int64_t bucket = BucketOf(flat, static_cast<int64_t>(i));
    for (int64_t b = 0; b < bucket; ++b) {
      padding += flat.buckets[b].range.size() - flat.buckets[b].unpadded;
    }
    if (padding == 0) continue;
    for (const Piece& piece : parameters[i]->parameter->pieces) {
      at_risk.insert(tensors[piece.tensor].name);
    }
  }
}

absl::Status CheckNotShifted(const ckpt::Reader& state,
                             const ckpt::Reader& weights,
                             const absl::btree_set<std::string>& at_risk) {
  const std::vector<std::string> names(at_risk.begin(), at_risk.end());
  absl::Status compared = CheckMasters(state, weights, names, /*all=*/false);
  if (!absl::IsDataLoss(compared)) return compared;
  return absl::DataLossError(absl::StrCat(
      compared.message(),
      ". Megatron-Core 0.15 to 0.19 shifts optimizer state "
      "of fully_reshardable checkpoints that were saved with padded buckets, "
      "and ",
      at_risk.size(),
      " tensors of this one lie so: save anew with "
      "dp_reshardable, or with a version that has the fix, to keep the "
      "optimizer"));
}

}  // namespace shardshift::reshard
