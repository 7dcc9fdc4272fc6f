// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/copy_plan.h"

#include <fnmatch.h>

#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/executors.h"
#include "reshard/layout/content.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/write_assignment.h"

namespace shardshift::reshard {
namespace {

// Enough to see the rate of a fast disk, and over in seconds on a slow one.
constexpr int64_t kProbeBytes = int64_t{256} << 20;
constexpr std::chrono::duration<double> kProbeTime(1.0);

// By tensor of the model. Errors: InvalidArgument if there is none.
absl::StatusOr<std::vector<bool>> Select(
    const std::vector<LogicalTensor>& tensors, const std::string& pattern) {
  std::vector<bool> selected(tensors.size());
  for (size_t t = 0; t < tensors.size(); ++t) {
    selected[t] = fnmatch(pattern.c_str(), tensors[t].name.c_str(), 0) == 0;
  }
  if (absl::c_linear_search(selected, true)) return selected;
  return absl::InvalidArgumentError(absl::StrCat(
      "no tensor of the model has a name like \"", pattern, "\"; it has ",
      tensors.size(), ", the first is ", tensors[0].name));
}

class CopyPlanner {
 public:
  CopyPlanner(const ckpt::Reader& source, const CopyChoice& choice)
      : source_(source),
        choice_(choice),
        from_(ContentOf(source)),
        to_(choice.weights_only ? Content::kWeights : from_) {}

  absl::StatusOr<CopyPlan> Plan(const ModelConfig& model,
                                const Layout& layout) {
    const std::vector<LogicalTensor> tensors = LogicalTensors(model);
    SS_ASSIGN_OR_RETURN(const std::vector<bool> selected,
                        Select(tensors, choice_.select));
    SS_RETURN_IF_ERROR(Check(tensors, selected));
    std::vector<std::vector<WriteItem>> items =
        AssignWriters(model, layout, to_, KeepingWeights(tensors));
    CopyPlan plan;
    std::map<std::pair<int64_t, int64_t>, TensorCopy> copies;
    for (size_t rank = 0; rank < items.size(); ++rank) {
      std::erase_if(items[rank], [&selected](const WriteItem& item) {
        return !selected[item.tensor];
      });
      if (items[rank].empty()) continue;
      const auto part = std::ssize(plan.parts);
      plan.parts.push_back({static_cast<int64_t>(rank),
                            FragmentSpecs(tensors, items[rank], to_)});
      for (int64_t i = 0; i < std::ssize(items[rank]); ++i) {
        const WriteItem& item = items[rank][i];
        copies[{item.tensor, item.role}].targets.push_back({part, i});
      }
    }
    for (auto& [key, copy] : copies) {
      SS_RETURN_IF_ERROR(SetSource(tensors[key.first], key.second, copy));
      SetDType(copy, plan.parts);
      plan.tensors.push_back(std::move(copy));
    }
    return plan;
  }

 private:
  absl::Status Check(const std::vector<LogicalTensor>& tensors,
                     const std::vector<bool>& selected) const {
    if (choice_.dtype.has_value() && to_ != Content::kWeights) {
      return absl::InvalidArgumentError(absl::StrCat(
          "optimizer state is stored as F32, so ", ckpt::Name(*choice_.dtype),
          " needs a copy of the weights alone (--weights-only)"));
    }
    if (choice_.dtype.has_value()) {
      SS_RETURN_IF_ERROR(
          ckpt::CheckConversion(ckpt::DType::kF32, *choice_.dtype));
    }
    std::vector<LogicalTensor> wanted;
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (selected[t]) wanted.push_back(tensors[t]);
    }
    SS_RETURN_IF_ERROR(CheckStored(source_, wanted, from_));
    return CheckNothingElse(source_, tensors, from_);
  }

  std::vector<bool> KeepingWeights(
      const std::vector<LogicalTensor>& tensors) const {
    if (to_ != Content::kTraining) return {};
    std::vector<bool> keeps_weight;
    keeps_weight.reserve(tensors.size());
    for (const LogicalTensor& tensor : tensors) {
      keeps_weight.push_back(KeepsWeight(source_, tensor.name));
    }
    return keeps_weight;
  }

  absl::Status SetSource(const LogicalTensor& tensor, int64_t role,
                         TensorCopy& copy) const {
    SS_ASSIGN_OR_RETURN(
        copy.source, to_ == Content::kWeights
                         ? FindWeight(source_, tensor.name)
                         : source_.FindTensor(tensor.name, RoleAt(to_, role)));
    return absl::OkStatus();
  }

  void SetDType(const TensorCopy& copy, std::vector<TargetPart>& parts) const {
    const ckpt::DType dtype =
        choice_.dtype.value_or(source_.table().tensors[copy.source].dtype);
    for (const TargetFragment& target : copy.targets) {
      parts[target.part].specs[target.spec].dtype = dtype;
    }
  }

  const ckpt::Reader& source_;
  const CopyChoice& choice_;
  const Content from_;
  const Content to_;
};

}  // namespace

absl::StatusOr<CopyPlan> PlanCopy(const ckpt::Reader& source,
                                  const ModelConfig& model,
                                  const Layout& layout,
                                  const CopyChoice& choice) {
  return CopyPlanner(source, choice).Plan(model, layout);
}

CopyPlan OnlyParts(const CopyPlan& plan, const std::vector<bool>& is_wanted) {
  CopyPlan some;
  std::vector<int64_t> new_index(plan.parts.size());
  for (size_t p = 0; p < plan.parts.size(); ++p) {
    new_index[p] = std::ssize(some.parts);
    if (is_wanted[p]) some.parts.push_back(plan.parts[p]);
  }
  for (const TensorCopy& copy : plan.tensors) {
    TensorCopy kept = {.source = copy.source, .copy = copy.copy};
    for (const TargetFragment& target : copy.targets) {
      if (!is_wanted[target.part]) continue;
      kept.targets.push_back({new_index[target.part], target.spec});
    }
    if (!kept.targets.empty()) some.tensors.push_back(std::move(kept));
  }
  return some;
}

bool Converts(const ckpt::Reader& source, const CopyPlan& plan) {
  std::map<int64_t, bool> is_kept;  // by source
  for (const TensorCopy& copy : plan.tensors) {
    const TargetFragment& any = copy.targets.front();
    is_kept[copy.source] |= plan.parts[any.part].specs[any.spec].dtype ==
                            source.table().tensors[copy.source].dtype;
  }
  return absl::c_any_of(is_kept, [](const auto& kept) { return !kept.second; });
}

std::vector<std::string> KeptWeights(const ckpt::Reader& source,
                                     const CopyPlan& plan) {
  std::set<std::string> names;
  for (const TensorCopy& copy : plan.tensors) {
    const ckpt::Tensor& tensor = source.table().tensors[copy.source];
    if (tensor.role == kWeightRoles[0] && KeepsWeight(source, tensor.name)) {
      names.insert(tensor.name);
    }
  }
  return {names.begin(), names.end()};
}

int64_t PayloadBytes(const TargetPart& part) {
  int64_t num_bytes = 0;
  for (const ckpt::FragmentSpec& spec : part.specs) {
    num_bytes += ckpt::NumElements(spec.box) * ckpt::ItemSize(spec.dtype);
  }
  return num_bytes;
}

int64_t PayloadBytes(const CopyPlan& plan) {
  int64_t num_bytes = 0;
  for (const TargetPart& part : plan.parts) num_bytes += PayloadBytes(part);
  return num_bytes;
}

absl::StatusOr<double> ProbeReads(const ckpt::Reader& source) {
  if (!source.has_parts()) return 0;
  SS_ASSIGN_OR_RETURN(ckpt::StagingBuffer buffer, ckpt::StagingBuffer::Take());
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> seconds(0);
  int64_t num_bytes = 0;
  for (const ckpt::Fragment& fragment : source.table().fragments) {
    for (const ckpt::Block& block : fragment.blocks) {
      if (block.stored_bytes < ckpt::kBlockBytes) continue;
      SS_ASSIGN_OR_RETURN(const auto file, source.PartFile(fragment.part));
      SS_RETURN_IF_ERROR(file->ReadAt(
          block.offset_bytes, buffer.bytes().first(block.stored_bytes)));
      num_bytes += block.stored_bytes;
      seconds = std::chrono::steady_clock::now() - begin;
      if (num_bytes >= kProbeBytes || seconds > kProbeTime) {
        return static_cast<double>(num_bytes) / seconds.count();
      }
    }
  }
  return num_bytes == 0 ? 0 : static_cast<double>(num_bytes) / seconds.count();
}

}  // namespace shardshift::reshard
