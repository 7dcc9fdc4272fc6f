// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_plain.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/deepspeed_values.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// What the optimizer has of one parameter, by its number.
struct NumberedState {
  int64_t group = 0;
  std::optional<TorchTensor> master = {};
  std::map<std::string, TorchTensor> states = {};
  std::optional<double> step = {};
  // Of the master, else of any state.
  std::optional<ckpt::Shape> shape = {};
  const NamedTensor* parameter = nullptr;  // once it is known
};

class PlainReader {
 public:
  PlainReader(const OpenedTorch& source, const DeepSpeedModel& model,
              int64_t file, DeepSpeedContents& contents)
      : source_(source), model_(model), file_(file), contents_(contents) {}

  absl::Status Read() {
    contents_.generic["zero_stage"] = 0;
    SS_ASSIGN_OR_RETURN(const auto optimizer,
                        source_.torch.root().Find("optimizer"));
    if (!optimizer.has_value() || optimizer->IsNone()) {
      contents_.notes.emplace_back(
          "the checkpoint has no state of an optimizer");
      return AddWeights(model_, {}, file_, contents_);
    }
    SS_ASSIGN_OR_RETURN(const auto masters, optimizer->Find("fp32_groups"));
    std::optional<PickleValue> inner = *optimizer;
    if (masters.has_value()) {
      SS_ASSIGN_OR_RETURN(inner, optimizer->Get("optimizer_state_dict"));
    }
    SS_ASSIGN_OR_RETURN(const auto state, inner->Find("state"));
    SS_ASSIGN_OR_RETURN(const auto groups, inner->Find("param_groups"));
    if (!state.has_value() || !groups.has_value()) {
      return absl::UnimplementedError(absl::StrCat(
          optimizer->Where(),
          " is of an optimizer that cannot be read, expected torch's "
          "state_dict (state, param_groups) or FP16_UnfusedOptimizer's "
          "(fp32_groups)"));
    }
    SS_RETURN_IF_ERROR(ReadGroups(*groups));
    SS_RETURN_IF_ERROR(ReadStates(*state));
    if (masters.has_value()) SS_RETURN_IF_ERROR(ReadMasters(*masters));
    SS_RETURN_IF_ERROR(MatchByShape());
    return AddAll(masters.has_value());
  }

 private:
  // Numbers are from 0 on, group by group.
  absl::Status ReadGroups(const PickleValue& value) {
    SS_ASSIGN_OR_RETURN(const auto groups, value.AsList());
    for (const PickleValue& group : groups) {
      SS_ASSIGN_OR_RETURN(json settings, ScalarsOf(group));
      SS_ASSIGN_OR_RETURN(const PickleValue params, group.Get("params"));
      SS_ASSIGN_OR_RETURN(const auto numbers, params.AsInts());
      for (const int64_t number : numbers) {
        if (number != std::ssize(parameters_)) {
          return params.Error(
              absl::StrCat("has ", number, ", expected ", parameters_.size()));
        }
        parameters_.push_back({.group = std::ssize(groups_)});
      }
      groups_.push_back(std::move(settings));
    }
    return absl::OkStatus();
  }

  absl::Status ReadStates(const PickleValue& value) {
    SS_ASSIGN_OR_RETURN(const auto entries, value.AsEntries());
    for (const auto& [key, state] : entries) {
      SS_ASSIGN_OR_RETURN(const int64_t number, key.AsInt());
      if (number < 0 || number >= std::ssize(parameters_)) {
        return state.Error(absl::StrCat("is of parameter ", number,
                                        ", but param_groups has ",
                                        parameters_.size()));
      }
      SS_RETURN_IF_ERROR(ReadState(state, parameters_[number]));
    }
    return absl::OkStatus();
  }

  absl::Status ReadState(const PickleValue& state, NumberedState& parameter) {
    SS_ASSIGN_OR_RETURN(const auto entries, state.AsEntries());
    for (const auto& [key, value] : entries) {
      SS_ASSIGN_OR_RETURN(const absl::string_view name, key.AsString());
      if (name == "step") {
        SS_ASSIGN_OR_RETURN(parameter.step, ReadStep(source_, value));
        continue;
      }
      if (!TorchFile::IsTensor(value)) continue;
      if (name == "master" || name == "weight") {
        return value.Error("has the name of another thing");
      }
      SS_ASSIGN_OR_RETURN(TorchTensor tensor, source_.torch.Tensor(value));
      SS_RETURN_IF_ERROR(SetShape(value, tensor, parameter));
      parameter.states.insert_or_assign(std::string(name), std::move(tensor));
    }
    return absl::OkStatus();
  }

  static absl::Status SetShape(const PickleValue& value,
                               const TorchTensor& tensor,
                               NumberedState& parameter) {
    if (!parameter.shape.has_value()) parameter.shape = tensor.shape;
    if (*parameter.shape == tensor.shape) return absl::OkStatus();
    return value.Error(absl::StrCat(
        "has shape ", ckpt::ToString(tensor.shape), ", expected ",
        ckpt::ToString(*parameter.shape), " as another state of it"));
  }

  // Lists of whole tensors, by group.
  absl::Status ReadMasters(const PickleValue& value) {
    SS_ASSIGN_OR_RETURN(const auto groups, value.AsList());
    size_t number = 0;
    for (const PickleValue& group : groups) {
      SS_ASSIGN_OR_RETURN(const auto tensors, group.AsList());
      for (const PickleValue& item : tensors) {
        if (number == parameters_.size()) break;
        NumberedState& parameter = parameters_[number++];
        SS_ASSIGN_OR_RETURN(parameter.master, source_.torch.Tensor(item));
        SS_RETURN_IF_ERROR(SetShape(item, *parameter.master, parameter));
      }
    }
    if (number == parameters_.size()) return absl::OkStatus();
    return value.Error(absl::StrCat("has ", number, " tensors, expected ",
                                    parameters_.size(), " as in param_groups"));
  }

  absl::Status MatchByShape() {
    std::map<ckpt::Shape, std::vector<NumberedState*>> wanted;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].shape.has_value()) {
        return absl::UnimplementedError(absl::StrCat(
            "parameter ", i,
            " of the optimizer has no state, and the file does not tell its "
            "name; only weights can be taken, by another way"));
      }
      wanted[*parameters_[i].shape].push_back(&parameters_[i]);
    }
    std::map<ckpt::Shape, std::vector<const NamedTensor*>> found;
    const std::map<std::string, std::string> aliases = AliasesOf(model_);
    const std::set<std::string> buffers(model_.buffers.begin(),
                                        model_.buffers.end());
    for (const NamedTensor& named : model_.module) {
      if (aliases.contains(named.name) || buffers.contains(named.name)) {
        continue;
      }
      found[named.tensor.shape].push_back(&named);
    }
    for (auto& [shape, states] : wanted) {
      const std::vector<const NamedTensor*>& named = found[shape];
      const bool same_group =
          states.front()->group == states.back()->group;  // they ascend
      if (named.size() != states.size() || (!same_group && states.size() > 1)) {
        return absl::UnimplementedError(absl::StrCat(
            "the optimizer numbers its parameters, and of shape ",
            ckpt::ToString(shape), " it has ", states.size(),
            same_group ? "" : " in several groups", ", the module ",
            named.size(), ": which is which cannot be told"));
      }
      for (size_t i = 0; i < states.size(); ++i) {
        states[i]->parameter = named[i];
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddAll(bool has_masters) {
    absl::flat_hash_set<std::string> with_master;
    std::vector<json> names(groups_.size(), json::array());
    std::vector<std::set<double>> steps(groups_.size());
    for (const NumberedState& p : parameters_) {
      const std::string& name = p.parameter->name;
      const TorchTensor& master = has_masters ? *p.master : p.parameter->tensor;
      if (master.dtype == ckpt::DType::kF32) {
        SS_RETURN_IF_ERROR(
            contents_.tensors.AddWhole(name, "master", master, file_));
        with_master.insert(name);
      }
      for (const auto& [role, tensor] : p.states) {
        SS_RETURN_IF_ERROR(
            contents_.tensors.AddWhole(name, role, tensor, file_));
      }
      names[p.group].push_back(name);
      if (p.step.has_value()) steps[p.group].insert(*p.step);
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      groups_[g]["params"] = std::move(names[g]);
      if (!steps[g].empty()) groups_[g]["step"] = StepsOf(steps[g]);
    }
    contents_.generic["groups"] = std::move(groups_);
    contents_.notes.emplace_back(
        "the optimizer's parameters, which have numbers but no names, are "
        "taken to be in the order of the module");
    if (has_masters) with_master.clear();
    return AddWeights(model_, with_master, file_, contents_);
  }

  const OpenedTorch& source_;
  const DeepSpeedModel& model_;
  const int64_t file_;
  DeepSpeedContents& contents_;
  std::vector<json> groups_;
  std::vector<NumberedState> parameters_;
};

}  // namespace

absl::Status AddPlain(const OpenedTorch& source, const DeepSpeedModel& model,
                      int64_t file, DeepSpeedContents& contents) {
  return Annotate(PlainReader(source, model, file, contents).Read(),
                  source.torch.path());
}

}  // namespace shardshift::reshard
