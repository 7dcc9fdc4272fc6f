// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_legacy_export.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/flat_buckets.h"
#include "reshard/formats/megatron_exports.h"
#include "reshard/formats/megatron_iteration.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/formats/megatron_ranks.h"
#include "reshard/formats/megatron_target.h"
#include "reshard/formats/torch_dtype.h"
#include "reshard/formats/torch_file_plan.h"
#include "reshard/layout/model_map.h"

namespace shardshift::reshard {
namespace {

// The files of one model-parallel rank.
class RankExport {
 public:
  RankExport(const MegatronSource& source, const ModelMap& map,
             const ModelRank& rank, MegatronExports& exports)
      : target_(source.target),
        layout_(source.target.args.layout),
        rank_(rank),
        exports_(exports),
        chunks_(ParametersOfRank(map, rank)) {
    for (const std::vector<Parameter>& parameters : chunks_) {
      modules_.push_back(ModuleInOrder(parameters, target_.style));
    }
  }

  absl::Status AddFiles(std::vector<ckpt::ForeignFile>& files) {
    const std::string folder = ckpt::JoinPath(target_.IterationFolder(),
                                              LegacyFolderName(layout_, rank_));
    TorchFilePlan file("model_optim_rng");
    SS_ASSIGN_OR_RETURN(PyValue::Attributes root,
                        target_.Common(WriterOf(layout_, rank_)));
    for (size_t chunk = 0; chunk < modules_.size(); ++chunk) {
      SS_ASSIGN_OR_RETURN(PyValue module, ModuleOf(modules_[chunk], file));
      root.emplace_back(
          modules_.size() == 1 ? "model" : absl::StrCat("model", chunk),
          std::move(module));
    }
    if (target_.content == Content::kTraining) {
      SS_ASSIGN_OR_RETURN(PyValue optimizer, Optimizer(file));
      root.emplace_back("optimizer", std::move(optimizer));
    }
    files.push_back(
        std::move(file).Finish(ckpt::JoinPath(folder, kLegacyModelFile),
                               PyValue::Dict(std::move(root))));
    if (target_.content != Content::kTraining ||
        !layout_.distributed_optimizer) {
      return absl::OkStatus();
    }
    TorchFilePlan flat("distrib_optim");
    SS_ASSIGN_OR_RETURN(const PyValue state, FlatState(flat));
    files.push_back(std::move(flat).Finish(
        ckpt::JoinPath(folder, kLegacyOptimizerFile), state));
    return absl::OkStatus();
  }

 private:
  using Parameters = std::vector<const ModuleParameter*>;

  // Which of the ranks that hold the same values this one is.
  int64_t ReplicaOf(const ModuleParameter& p) const {
    int64_t replica = p.parameter->is_copy ? 1 : 0;
    replica = replica * layout_.expert + (p.is_expert ? 0 : rank_.expert);
    return replica * layout_.tensor +
           (p.parameter->split == Split::kReplicated ? rank_.tensor : 0);
  }

  absl::StatusOr<PyValue> TensorOf(const ModuleParameter& p, const char* role,
                                   TorchFilePlan& file) {
    SS_ASSIGN_OR_RETURN(auto pieces,
                        exports_.Pieces(*p.parameter, role, ReplicaOf(p)));
    return file.AddTensor(exports_.DTypeOf(role), p.parameter->shape,
                          std::move(pieces));
  }

  absl::StatusOr<PyValue> ModuleOf(const Module& module, TorchFilePlan& file) {
    PyValue::Attributes entries;
    for (const ModuleParameter& p : module.parameters) {
      SS_ASSIGN_OR_RETURN(PyValue tensor, TensorOf(p, "weight", file));
      entries.emplace_back(p.name, std::move(tensor));
    }
    return PyValue::Dict(std::move(entries));
  }

  // Of all chunks. `experts`: those with an optimizer of their own.
  Parameters ParametersOf(bool experts) const {
    Parameters all;
    for (const Module& module : modules_) {
      const Parameters some = ParametersOfBuffer(module, layout_, experts);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  absl::StatusOr<PyValue> Optimizer(TorchFilePlan& file) {
    PyValue::Items optimizers;
    for (const bool experts : {false, true}) {
      if (experts && !layout_.separates_experts()) continue;
      SS_ASSIGN_OR_RETURN(PyValue optimizer,
                          layout_.distributed_optimizer
                              ? DistributedGroups(experts)
                              : PlainOptimizer(experts, file));
      optimizers.push_back(std::move(optimizer));
    }
    return optimizers.size() == 1 ? std::move(optimizers.front())
                                  : PyValue::List(std::move(optimizers));
  }

  // Those of a kind, if there are any.
  Parameters Group(const Parameters& parameters, bool decays) const {
    Parameters group;
    for (const ModuleParameter* p : parameters) {
      if (Decays(*p) == decays) group.push_back(p);
    }
    return group;
  }

  absl::StatusOr<PyValue> DistributedGroups(bool experts) {
    PyValue::Items groups;
    const Parameters parameters = ParametersOf(experts);
    for (const bool decays : {true, false}) {
      if (Group(parameters, decays).empty()) continue;
      SS_ASSIGN_OR_RETURN(PyValue::Attributes group,
                          GroupOf(target_, decays, experts));
      groups.push_back(PyValue::Dict(std::move(group)));
    }
    return Nested("optimizer",
                  {{"param_groups", PyValue::List(std::move(groups))}});
  }

  static PyValue Nested(const char* key, PyValue::Attributes entries) {
    return PyValue::Dict(
        PyValue::Attributes{{key, PyValue::Dict(std::move(entries))}});
  }

  // torch's own: states by number, and masters of what has fewer bits.
  absl::StatusOr<PyValue> PlainOptimizer(bool experts, TorchFilePlan& file) {
    PyValue::Items groups;
    PyValue::Items masters;
    PyValue::Entries states;
    const Parameters parameters = ParametersOf(experts);
    for (const bool decays : {true, false}) {
      const Parameters members = Group(parameters, decays);
      if (members.empty()) continue;
      PyValue::Items numbers;
      PyValue::Items tensors;
      for (const ModuleParameter* p : members) {
        numbers.push_back(PyValue::Int(std::ssize(states)));
        SS_ASSIGN_OR_RETURN(PyValue state, StateOf(*p, file));
        states.emplace_back(numbers.back(), std::move(state));
        if (target_.weight_dtype == ckpt::DType::kF32) continue;
        SS_ASSIGN_OR_RETURN(PyValue master, TensorOf(*p, "master", file));
        tensors.push_back(std::move(master));
      }
      SS_ASSIGN_OR_RETURN(PyValue::Attributes group,
                          GroupOf(target_, decays, experts));
      group.emplace_back("params", PyValue::List(std::move(numbers)));
      groups.push_back(PyValue::Dict(std::move(group)));
      masters.push_back(PyValue::List(std::move(tensors)));
    }
    PyValue::Attributes inner;
    inner.emplace_back("state", PyValue::Dict(std::move(states)));
    inner.emplace_back("param_groups", PyValue::List(std::move(groups)));
    if (target_.weight_dtype == ckpt::DType::kF32) {
      return PyValue::Dict(std::move(inner));
    }
    PyValue::Attributes outer;
    outer.emplace_back("optimizer", PyValue::Dict(std::move(inner)));
    outer.emplace_back("fp32_from_fp16_params",
                       PyValue::List(std::move(masters)));
    return PyValue::Dict(std::move(outer));
  }

  absl::StatusOr<PyValue> StateOf(const ModuleParameter& p,
                                  TorchFilePlan& file) {
    PyValue::Attributes state;
    for (const char* role : {"exp_avg", "exp_avg_sq"}) {
      SS_ASSIGN_OR_RETURN(PyValue tensor, TensorOf(p, role, file));
      state.emplace_back(role, std::move(tensor));
    }
    state.emplace_back(
        "step", PyValue::Float(static_cast<double>(target_.optimizer_step)));
    return PyValue::Dict(std::move(state));
  }

  // distrib_optim.pt: of the dense parameters the first expert rank's.
  absl::StatusOr<PyValue> FlatState(TorchFilePlan& file) {
    if (!layout_.separates_experts()) return FlatBuffers(false, file);
    PyValue dense;
    if (rank_.expert == 0) {
      SS_ASSIGN_OR_RETURN(dense, FlatBuffers(false, file));
    }
    SS_ASSIGN_OR_RETURN(PyValue of_experts, FlatBuffers(true, file));
    return PyValue::List({std::move(dense), std::move(of_experts)});
  }

  absl::StatusOr<PyValue> FlatBuffers(bool experts, TorchFilePlan& file) {
    PyValue::Entries buffers;
    buffers.emplace_back(PyValue::Str("buckets_coalesced"),
                         PyValue::Bool(true));
    int64_t number = 0;
    for (size_t chunk = 0; chunk < modules_.size(); ++chunk) {
      const Parameters parameters =
          ParametersOfBuffer(modules_[chunk], layout_, experts);
      if (parameters.empty()) continue;
      const FlatPlace place = {rank_.pipeline == 0, static_cast<int64_t>(chunk),
                               experts};
      SS_ASSIGN_OR_RETURN(PyValue buffer,
                          Buffer(LayOutFlat(target_.args, place, parameters),
                                 parameters, file));
      buffers.emplace_back(PyValue::Int(number++), std::move(buffer));
    }
    return PyValue::Dict(std::move(buffers));
  }

  absl::StatusOr<PyValue> Buffer(const FlatBuffer& flat,
                                 const Parameters& parameters,
                                 TorchFilePlan& file) {
    const int64_t num_elements = CompactElements(flat);
    PyValue::Attributes states;
    for (const auto& [key, role] : kFlatStates) {
      std::vector<StoragePiece> pieces;
      // Parameters lie in the reverse of their order.
      for (int64_t i = std::ssize(parameters); i-- > 0;) {
        const ModuleParameter& p = *parameters[i];
        SS_ASSIGN_OR_RETURN(auto some,
                            exports_.Pieces(*p.parameter, role, ReplicaOf(p)));
        const int64_t begin = CompactBegin(flat, i);
        for (StoragePiece& piece : some) {
          piece.offset_bytes += begin * ckpt::ItemSize(ckpt::DType::kF32);
          pieces.push_back(std::move(piece));
        }
      }
      states.emplace_back(key, file.AddTensor(ckpt::DType::kF32, {num_elements},
                                              std::move(pieces)));
    }
    states.emplace_back("numel_unpadded", PyValue::Int(num_elements));
    PyValue::Entries by_dtype;
    by_dtype.emplace_back(DTypeKey(), PyValue::Dict(std::move(states)));
    return PyValue::Dict(std::move(by_dtype));
  }

  // Of a buffer: the dtypes of its parameters and of their gradients.
  PyValue DTypeKey() const {
    const auto global = [](ckpt::DType dtype) {
      return PyValue::Global("torch", TorchName(dtype));
    };
    const auto found =
        target_.args.arguments.find("accumulate_allreduce_grads_in_fp32");
    const bool in_weight_dtype =
        found != target_.args.arguments.end() && *found == false;
    return PyValue::Tuple(
        {global(target_.weight_dtype),
         global(in_weight_dtype ? target_.weight_dtype : ckpt::DType::kF32)});
  }

  const MegatronTarget& target_;
  const Layout& layout_;
  const ModelRank rank_;
  MegatronExports& exports_;
  const std::vector<std::vector<Parameter>> chunks_;
  std::vector<Module> modules_;  // of the chunks
};

}  // namespace

absl::StatusOr<ExportPlan> PlanMegatronLegacyExport(
    const ckpt::Reader& source, const ExportChoice& choice) {
  if (choice.layout.expert_tensor_size() != choice.layout.tensor) {
    return absl::InvalidArgumentError(
        "--expert-tensor-parallel-size other than the tensor-parallel size "
        "cannot be said in Megatron's legacy files; --to torch_dist can");
  }
  SS_ASSIGN_OR_RETURN(const MegatronSource megatron,
                      ReadMegatronSource(source, Format::kMegatron, choice));
  const MegatronTarget& target = megatron.target;
  const Layout& layout = target.args.layout;
  const ModelMap map(target.args.model, layout);
  MegatronExports exports(source, megatron);
  ExportPlan plan;
  ModelRank rank;
  for (rank.pipeline = 0; rank.pipeline < layout.pipeline; ++rank.pipeline) {
    for (rank.tensor = 0; rank.tensor < layout.tensor; ++rank.tensor) {
      for (rank.expert = 0; rank.expert < layout.expert; ++rank.expert) {
        SS_RETURN_IF_ERROR(
            RankExport(megatron, map, rank, exports).AddFiles(plan.files));
      }
    }
  }
  plan.tensors = std::move(exports).Take();
  // Last: without it there is no checkpoint.
  plan.texts.push_back({kMegatronTracker, target.Tracker()});
  plan.left_out = target.left_out;
  plan.layout = target.args.layout;
  return plan;
}

}  // namespace shardshift::reshard
