// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_common.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/pickle_writer.h"
#include "reshard/formats/torch_writer.h"

namespace shardshift::reshard {
namespace {

constexpr char kFullyReshardable[] = "fully_reshardable";

PyValue::Attributes::iterator Find(PyValue::Attributes& group,
                                   absl::string_view key) {
  return std::find_if(group.begin(), group.end(),
                      [key](const auto& entry) { return entry.first == key; });
}

// The optimizer's part, and the tensors in it.
class CommonOptimizer {
 public:
  CommonOptimizer(const MegatronTarget& target, TorchFileBuilder& builder)
      : target_(target),
        builder_(builder),
        is_distributed_(target.args.layout.distributed_optimizer) {}

  absl::StatusOr<PyValue> Make() {
    SS_ASSIGN_OR_RETURN(PyValue dense, Of(/*experts=*/false));
    if (!ChainsOptimizers(target_.args.layout)) return dense;
    SS_ASSIGN_OR_RETURN(PyValue experts, Of(/*experts=*/true));
    PyValue::Entries chain;
    chain.emplace_back(PyValue::Int(0), std::move(dense));
    chain.emplace_back(PyValue::Int(1), std::move(experts));
    return PyValue::Dict(std::move(chain));
  }

  // The bytes of each tensor.
  std::vector<std::string> TakeStorages() && { return std::move(storages_); }

 private:
  absl::StatusOr<PyValue> Of(bool experts) {
    PyValue::Items groups;
    bool group_has_step = true;
    for (const bool decays : {true, false}) {
      // Those of experts are matrices, but for their biases. A loader counts
      // the groups.
      if (experts && !decays && !target_.args.model.add_bias_linear) continue;
      SS_ASSIGN_OR_RETURN(PyValue::Attributes group,
                          GroupOf(target_, decays, experts));
      group_has_step = SetStep(group);
      groups.push_back(PyValue::Dict(std::move(group)));
    }
    PyValue::Attributes inner;
    if (!is_distributed_) {
      PyValue::Attributes state;
      if (!group_has_step) state.emplace_back("common_step", StepTensor());
      inner.emplace_back("state", PyValue::Dict(std::move(state)));
    }
    inner.emplace_back("param_groups", PyValue::List(std::move(groups)));
    // Without masters there is no optimizer around torch's.
    const bool has_masters = target_.weight_dtype != ckpt::DType::kF32;
    if (!is_distributed_ && !has_masters)
      return PyValue::Dict(std::move(inner));
    PyValue::Attributes outer;
    outer.emplace_back("optimizer", PyValue::Dict(std::move(inner)));
    if (is_distributed_) {
      outer.emplace_back("param_state_sharding_type",
                         PyValue::Str(kFullyReshardable));
    }
    return PyValue::Dict(std::move(outer));
  }

  // Gives whether it is there: of the fused Adam always, which alone has a
  // bias_correction; of torch's only under a distributed optimizer.
  bool SetStep(PyValue::Attributes& group) const {
    const auto step = Find(group, "step");
    if (step != group.end()) group.erase(step);
    if (!is_distributed_ && Find(group, "bias_correction") == group.end()) {
      return false;
    }
    group.emplace_back("step", PyValue::Int(target_.optimizer_step));
    return true;
  }

  PyValue StepTensor() {
    ckpt::Encoder bytes;
    bytes.PutU32(
        std::bit_cast<uint32_t>(static_cast<float>(target_.optimizer_step)));
    storages_.push_back(bytes.bytes());
    return builder_.Tensor(builder_.AddStorage(ckpt::DType::kF32, 1), {});
  }

  const MegatronTarget& target_;
  TorchFileBuilder& builder_;
  const bool is_distributed_;
  std::vector<std::string> storages_;
};

// Tells a loader what to look for.
PyValue ContentMetadata(bool is_distributed) {
  PyValue::Attributes content;
  if (is_distributed) {
    content.emplace_back("distrib_optim_sharding_type",
                         PyValue::Str(kFullyReshardable));
    content.emplace_back("distrib_optim_fully_reshardable_mem_efficient",
                         PyValue::Bool(false));
  }
  content.emplace_back("singleton_local_shards", PyValue::Bool(false));
  content.emplace_back("chained_optim_avoid_prefix", PyValue::Bool(true));
  return PyValue::Dict(std::move(content));
}

}  // namespace

bool ChainsOptimizers(const Layout& layout) { return layout.expert > 1; }

absl::StatusOr<std::string> TorchDistCommon(const MegatronTarget& target) {
  SS_ASSIGN_OR_RETURN(PyValue::Attributes common, target.Common(0));
  TorchFileBuilder builder("common");
  CommonOptimizer optimizer(target, builder);
  if (target.content == Content::kTraining) {
    SS_ASSIGN_OR_RETURN(PyValue state, optimizer.Make());
    common.emplace_back("optimizer", std::move(state));
  }
  common.emplace_back(
      "content_metadata",
      ContentMetadata(target.args.layout.distributed_optimizer));
  return builder.Layout(PyValue::Dict(std::move(common)))
      .Bytes(std::move(optimizer).TakeStorages());
}

}  // namespace shardshift::reshard
