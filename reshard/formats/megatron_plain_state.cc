// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_plain_state.h"

#include <cstddef>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

// torch's state of an optimizer: parameters by number, those that decay before
// those that do not, each in the order of registration.
class PlainState {
 public:
  PlainState(const TorchFile& torch, int64_t file, StateAdder& adder)
      : torch_(torch), file_(file), adder_(adder) {}

  absl::Status Add(const PickleValue& root,
                   const std::vector<Module>& modules) {
    SS_ASSIGN_OR_RETURN(const auto optimizers,
                        adder_.OptimizersIn(root, torch_.path()));
    SS_RETURN_IF_ERROR(AddOptimizer(optimizers[0], modules, false));
    if (optimizers.size() == 1) return absl::OkStatus();
    return AddOptimizer(optimizers[1], modules, true);
  }

  bool has_stepped() const { return has_stepped_; }

 private:
  absl::Status AddOptimizer(const PickleValue& optimizer,
                            const std::vector<Module>& modules, bool experts) {
    // Where all parameters have 32 bits, torch's is not wrapped.
    SS_ASSIGN_OR_RETURN(const auto wrapped, optimizer.Find("optimizer"));
    const PickleValue inner = wrapped.value_or(optimizer);
    SS_ASSIGN_OR_RETURN(const PickleValue state, inner.Get("state"));
    SS_ASSIGN_OR_RETURN(const auto states, state.AsEntries());
    SS_ASSIGN_OR_RETURN(const auto order, InOrder(inner, modules, experts));
    SS_ASSIGN_OR_RETURN(const auto masters, MastersOf(optimizer));
    if (!masters.empty() && masters.size() != order.size()) {
      return absl::DataLossError(absl::StrCat(
          torch_.path(), ": the optimizer has masters of ", masters.size(),
          " parameters, and there are ", order.size()));
    }
    if (states.empty() && !order.empty()) has_stepped_ = false;
    std::vector<const PickleValue*> by_number(order.size(), nullptr);
    for (const auto& [key, value] : states) {
      SS_ASSIGN_OR_RETURN(const int64_t index, key.AsInt());
      if (index < 0 || index >= std::ssize(order)) {
        return key.Wrong("the number of a parameter");
      }
      by_number[index] = &value;
    }
    for (size_t i = 0; i < order.size(); ++i) {
      if (by_number[i] == nullptr && !states.empty()) {
        return absl::DataLossError(absl::StrCat(
            torch_.path(), ": the optimizer has no state of parameter ", i,
            ", ", order[i]->name, ", and state of ", states.size(),
            " others; --weights-only leaves the optimizer behind"));
      }
      if (!adder_.IsMine(*order[i])) continue;
      SS_RETURN_IF_ERROR(AddMoments(*order[i], by_number[i]));
      // A parameter of 32 bits is its own master.
      TorchTensor master = order[i]->tensor;
      if (!masters.empty()) {
        SS_ASSIGN_OR_RETURN(master, torch_.Tensor(masters[i]));
      }
      SS_RETURN_IF_ERROR(AddChecked(*order[i], master, "master"));
    }
    return absl::OkStatus();
  }

  absl::Status AddMoments(const ModuleParameter& parameter,
                          const PickleValue* state) {
    for (const char* role : {"exp_avg", "exp_avg_sq"}) {
      SS_RETURN_IF_ERROR(state == nullptr
                             ? adder_.AddZeros(*parameter.parameter, role)
                             : AddTensor(parameter, *state, role));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<const ModuleParameter*>> InOrder(
      const PickleValue& inner, const std::vector<Module>& modules,
      bool experts) const {
    SS_ASSIGN_OR_RETURN(const PickleValue value, inner.Get("param_groups"));
    SS_ASSIGN_OR_RETURN(const auto groups, value.AsList());
    std::vector<const ModuleParameter*> order;
    for (const PickleValue& group : groups) {
      SS_ASSIGN_OR_RETURN(const PickleValue mult, group.Get("wd_mult"));
      SS_ASSIGN_OR_RETURN(const double decay, mult.AsDouble());
      const size_t before = order.size();
      for (const Module& module : modules) {
        for (const ModuleParameter* p : ParametersOfBuffer(
                 module, adder_.source().args->layout, experts)) {
          if (Decays(*p) == (decay != 0)) order.push_back(p);
        }
      }
      SS_ASSIGN_OR_RETURN(const PickleValue numbers, group.Get("params"));
      SS_ASSIGN_OR_RETURN(const size_t count, numbers.ListSize());
      if (count != order.size() - before) {
        return absl::DataLossError(absl::StrCat(
            torch_.path(), ": ", numbers.Where(), " has ", count,
            " parameters, of the model there are ", order.size() - before,
            ", and which are meant cannot be told; --weights-only leaves the "
            "optimizer behind"));
      }
    }
    return order;
  }

  static absl::StatusOr<std::vector<PickleValue>> MastersOf(
      const PickleValue& optimizer) {
    std::vector<PickleValue> masters;
    SS_ASSIGN_OR_RETURN(const auto found,
                        optimizer.Find("fp32_from_fp16_params"));
    if (!found.has_value()) return masters;
    SS_ASSIGN_OR_RETURN(const auto groups, found->AsList());
    for (const PickleValue& group : groups) {
      SS_ASSIGN_OR_RETURN(const auto tensors, group.AsList());
      masters.insert(masters.end(), tensors.begin(), tensors.end());
    }
    return masters;
  }

  absl::Status AddTensor(const ModuleParameter& parameter,
                         const PickleValue& states, const char* role) {
    SS_ASSIGN_OR_RETURN(const PickleValue value, states.Get(role));
    SS_ASSIGN_OR_RETURN(const TorchTensor tensor, torch_.Tensor(value));
    return AddChecked(parameter, tensor, role);
  }

  absl::Status AddChecked(const ModuleParameter& parameter,
                          const TorchTensor& tensor, const char* role) {
    if (tensor.shape != parameter.tensor.shape || !tensor.IsDense()) {
      return absl::DataLossError(absl::StrCat(
          torch_.path(), ": ", role, " of ", parameter.name, " has shape ",
          ckpt::ToString(tensor.shape), ", the parameter ",
          ckpt::ToString(parameter.tensor.shape)));
    }
    adder_.AddCheck(torch_.path(), tensor);
    return adder_.AddParameter(*parameter.parameter, role, tensor.dtype, file_,
                               tensor.offset_bytes);
  }

  const TorchFile& torch_;
  const int64_t file_;
  StateAdder& adder_;
  bool has_stepped_ = true;
};

}  // namespace

absl::StatusOr<bool> AddPlainState(const TorchFile& torch, int64_t file,
                                   const PickleValue& optimizer,
                                   const std::vector<Module>& modules,
                                   StateAdder& adder) {
  PlainState state(torch, file, adder);
  SS_RETURN_IF_ERROR(state.Add(optimizer, modules));
  return state.has_stepped();
}

}  // namespace shardshift::reshard
