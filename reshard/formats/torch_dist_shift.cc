// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_shift.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/flat_buckets.h"

namespace shardshift::reshard {
namespace {

// Of a tensor, from its front: a shift shows in nearly every element.
constexpr int64_t kElementsCompared = int64_t{1} << 16;

ckpt::Box FrontOf(const ckpt::Shape& shape) {
  ckpt::Box box = ckpt::WholeBox(shape);
  if (shape.empty()) return box;
  const int64_t row = std::max<int64_t>(
      1, ckpt::NumElements(box) / std::max<int64_t>(1, shape[0]));
  box.extent[0] = std::clamp<int64_t>(kElementsCompared / row, 1, shape[0]);
  return box;
}

}  // namespace

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
  for (const std::string& name : at_risk) {
    SS_ASSIGN_OR_RETURN(const int64_t master, state.FindTensor(name, "master"));
    SS_ASSIGN_OR_RETURN(const int64_t weight,
                        weights.FindTensor(name, "weight"));
    const ckpt::Tensor& tensor = weights.table().tensors[weight];
    const ckpt::Box front = FrontOf(tensor.shape);
    const int64_t num_bytes =
        ckpt::NumElements(front) * ckpt::ItemSize(tensor.dtype);
    std::vector<std::byte> rounded(num_bytes);
    std::vector<std::byte> expected(num_bytes);
    SS_RETURN_IF_ERROR(
        state.ReadTensor(master, front, rounded.data(), tensor.dtype));
    SS_RETURN_IF_ERROR(weights.ReadTensor(weight, front, expected.data()));
    if (rounded == expected) continue;
    return absl::DataLossError(absl::StrCat(
        state.directory(), ": the masters of ", name,
        " are not the unrounded weights: Megatron-Core 0.15 to 0.19 shifts "
        "optimizer state of fully_reshardable checkpoints that were saved with "
        "padded buckets, and ",
        at_risk.size(),
        " tensors of this one lie so. The weights are right: "
        "--weights-only takes them. Save anew with dp_reshardable, or with a "
        "version that has the fix, to keep the optimizer"));
  }
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
