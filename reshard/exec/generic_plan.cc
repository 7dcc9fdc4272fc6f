// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/generic_plan.h"

#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/content.h"

namespace shardshift::reshard {
namespace {

int64_t TensorBytes(const ckpt::Tensor& tensor) {
  return ckpt::NumElements(ckpt::WholeBox(tensor.shape)) *
         ckpt::ItemSize(tensor.dtype);
}

// A master is one if there is no other.
bool IsWeight(const ckpt::Reader& source, const ckpt::Tensor& tensor) {
  return tensor.role == kWeightRoles[0] ||
         (tensor.role == kOptimizerRoles[0] &&
          !source.FindTensor(tensor.name, kWeightRoles[0]).ok());
}

absl::StatusOr<std::vector<int64_t>> ChosenTensors(const ckpt::Reader& source,
                                                   const CopyChoice& choice) {
  const auto& tensors = source.table().tensors;
  std::vector<int64_t> chosen;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (choice.weights_only && !IsWeight(source, tensors[t])) continue;
    if (fnmatch(choice.select.c_str(), tensors[t].name.c_str(), 0) != 0) {
      continue;
    }
    chosen.push_back(static_cast<int64_t>(t));
  }
  if (!chosen.empty()) return chosen;
  return absl::InvalidArgumentError(
      absl::StrCat(source.directory(), " has no tensor like \"", choice.select,
                   "\", of ", tensors.size()));
}

// Numbers that are no floats stay as they are.
ckpt::DType DTypeOf(const ckpt::Tensor& tensor, const CopyChoice& choice) {
  const ckpt::DType wanted = choice.dtype.value_or(tensor.dtype);
  return ckpt::CheckConversion(tensor.dtype, wanted).ok() ? wanted
                                                          : tensor.dtype;
}

// By tensor, its part: the largest first, each to the least full.
std::map<int64_t, int64_t> Distribute(const ckpt::Reader& source,
                                      std::vector<int64_t> tensors,
                                      int64_t num_parts) {
  std::stable_sort(tensors.begin(), tensors.end(), [&](int64_t a, int64_t b) {
    return TensorBytes(source.table().tensors[a]) >
           TensorBytes(source.table().tensors[b]);
  });
  using Load = std::pair<int64_t, int64_t>;  // bytes, part
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int64_t p = 0; p < num_parts; ++p) loads.emplace(0, p);
  std::map<int64_t, int64_t> part_of;
  for (const int64_t t : tensors) {
    const auto [num_bytes, part] = loads.top();
    loads.pop();
    part_of[t] = part;
    loads.emplace(num_bytes + TensorBytes(source.table().tensors[t]), part);
  }
  return part_of;
}

}  // namespace

absl::StatusOr<CopyPlan> PlanGenericCopy(const ckpt::Reader& source,
                                         int64_t num_parts,
                                         const CopyChoice& choice) {
  SS_ASSIGN_OR_RETURN(std::vector<int64_t> chosen,
                      ChosenTensors(source, choice));
  const auto part_of = Distribute(source, std::move(chosen), num_parts);
  std::map<int64_t, int64_t> index_of;  // of a part in the plan, by its number
  for (const auto& [tensor, part] : part_of) index_of[part] = 0;
  CopyPlan plan;
  for (auto& [number, index] : index_of) {
    index = std::ssize(plan.parts);
    plan.parts.push_back({number, {}});
  }
  for (const auto& [t, number] : part_of) {
    const ckpt::Tensor& tensor = source.table().tensors[t];
    const int64_t part = index_of[number];
    std::vector<ckpt::FragmentSpec>& specs = plan.parts[part].specs;
    plan.tensors.push_back(
        {.source = t, .targets = {{part, std::ssize(specs)}}});
    specs.push_back(
        {tensor.name, choice.weights_only ? kWeightRoles[0] : tensor.role,
         DTypeOf(tensor, choice), tensor.shape, ckpt::WholeBox(tensor.shape)});
  }
  return plan;
}

}  // namespace shardshift::reshard
