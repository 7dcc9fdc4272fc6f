// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_steps.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kMaxStepBytes = 8;
// Up to which a double holds every one.
constexpr double kMaxSteps = 0x1p53;
// A parameter has a few values.
constexpr WalkLimits kLimits = {.max_visits = int64_t{1} << 26};

// The number of a tensor of one element.
absl::StatusOr<double> NumberOf(const ckpt::File& file,
                                const TorchTensor& tensor) {
  if (ckpt::NumElements(ckpt::WholeBox(tensor.shape)) != 1 ||
      ckpt::ComponentDType(tensor.dtype) != tensor.dtype) {
    return absl::DataLossError(absl::StrCat(file.path(), ": a step has shape ",
                                            ckpt::ToString(tensor.shape)));
  }
  SS_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                      ReadTensor(file, tensor, kMaxStepBytes));
  return ckpt::ToDouble(tensor.dtype, bytes.data());
}

}  // namespace

absl::Status OptimizerSteps::Collect(const ckpt::File& file,
                                     const TorchFile& torch,
                                     const PickleValue& optimizer) {
  return WalkPickle(
      optimizer, kLimits,
      [&](const PickleValue& value, int64_t) -> absl::StatusOr<bool> {
        const bool is_tensor = TorchFile::IsTensor(value);
        const bool is_number = value.kind() == PickleKind::kInt ||
                               value.kind() == PickleKind::kFloat;
        if (!is_tensor && !is_number) return true;
        const std::string path = value.path();
        if (!absl::EndsWith(path, ".step") &&
            !absl::EndsWith(path, ".common_step")) {
          return false;
        }
        double step = 0;
        if (is_tensor) {
          SS_ASSIGN_OR_RETURN(const TorchTensor tensor, torch.Tensor(value));
          SS_ASSIGN_OR_RETURN(step, NumberOf(file, tensor));
        } else {
          SS_ASSIGN_OR_RETURN(step, value.AsDouble());
        }
        if (!Add(step).ok()) return value.Error("is no number of steps");
        return false;
      });
}

absl::Status OptimizerSteps::Add(double step) {
  // False for what is no number, too.
  if (step >= 0 && step <= kMaxSteps && step == std::floor(step)) {
    steps_.insert(static_cast<int64_t>(step));
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(step, " is no number of steps"));
}

absl::StatusOr<std::optional<int64_t>> OptimizerSteps::TheOne() const {
  if (steps_.empty()) return std::nullopt;
  if (steps_.size() == 1) return *steps_.begin();
  return absl::DataLossError(
      absl::StrCat("the optimizer has made ", *steps_.begin(),
                   " steps for some parameters "
                   "and ",
                   *steps_.rbegin(),
                   " for others; one number for all is expected. "
                   "--weights-only leaves the optimizer behind"));
}

}  // namespace shardshift::reshard
