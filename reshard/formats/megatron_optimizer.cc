// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_optimizer.h"

#include <array>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/flat_buckets.h"
#include "reshard/formats/megatron_ranks.h"
#include "reshard/layout/flat_buffer.h"

namespace shardshift::reshard {
namespace {

class StateAdder {
 public:
  StateAdder(const OptimizerSource& source, ckpt::ForeignFilesBuilder& builder)
      : source_(source), builder_(builder) {}

  absl::StatusOr<int64_t> AddFile(const std::string& path) {
    SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
    SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
    return builder_.AddFile(path, num_bytes);
  }

  // The pieces of a parameter that begins at `offset_bytes` of the file.
  absl::Status AddParameter(const Parameter& parameter, const char* role,
                            ckpt::DType dtype, int64_t file,
                            int64_t offset_bytes) {
    // The copy of an embedding is the embedding of another rank.
    if (parameter.is_copy) return absl::OkStatus();
    for (const Piece& piece : parameter.pieces) {
      const LogicalTensor& tensor = (*source_.tensors)[piece.tensor];
      const int64_t place = offset_bytes + piece.offset * ckpt::ItemSize(dtype);
      SS_RETURN_IF_ERROR(builder_.Add({tensor.name, role, dtype, tensor.shape},
                                      piece.box, {file, place, 0}));
    }
    return absl::OkStatus();
  }

  absl::Status AddFlat(const Parameter& parameter, int64_t begin,
                       const SourceTensor& flat, const char* role) {
    return AddFlatParameter(parameter, begin, flat, role, *source_.tensors,
                            builder_);
  }

  void AddCheck(const std::string& path, const TorchTensor& tensor) {
    source_.checks->push_back(CheckOf(path, tensor));
  }

  const OptimizerSource& source() const { return source_; }
  // Whether no other rank is the one to tell of it.
  bool IsMine(const ModuleParameter& parameter) const {
    return IsTold(parameter, source_.is_first_tensor_rank,
                  source_.is_first_expert_rank);
  }

 private:
  const OptimizerSource& source_;
  ckpt::ForeignFilesBuilder& builder_;
};

// distrib_optim.pt: flat buffers, of which the padding at the ends of buckets
// is left out.
class DistributedState {
 public:
  DistributedState(std::string path, const TorchFile& torch, int64_t file,
                   StateAdder& adder)
      : path_(std::move(path)), torch_(torch), file_(file), adder_(adder) {}

  absl::Status Add(const PickleValue& root,
                   const std::vector<Module>& modules) {
    const bool separates = adder_.source().args->layout.separates_experts();
    if (!separates) return AddOptimizer(root, modules, false);
    SS_ASSIGN_OR_RETURN(const auto optimizers, root.AsList());
    if (optimizers.size() != 2) {
      return Wrong(absl::StrCat("has ", optimizers.size(),
                                " optimizers, expected those of the dense "
                                "parameters and of the experts"));
    }
    if (adder_.source().is_first_expert_rank) {
      SS_RETURN_IF_ERROR(AddOptimizer(optimizers[0], modules, false));
    }
    return AddOptimizer(optimizers[1], modules, true);
  }

 private:
  absl::Status Wrong(absl::string_view problem) const {
    return absl::DataLossError(absl::StrCat(path_, ": ", problem));
  }

  // The buffers of an optimizer are numbered by chunk; of `experts`, those that
  // it has.
  absl::Status AddOptimizer(const PickleValue& optimizer,
                            const std::vector<Module>& modules, bool experts) {
    SS_ASSIGN_OR_RETURN(const auto entries, optimizer.AsEntries());
    int64_t number = 0;
    for (size_t chunk = 0; chunk < modules.size(); ++chunk) {
      const auto parameters = ParametersOfBuffer(
          modules[chunk], adder_.source().args->layout, experts);
      if (parameters.empty()) continue;
      const PickleValue* buffer = nullptr;
      for (const auto& [key, value] : entries) {
        if (key.kind() == PickleKind::kInt && *key.AsInt() == number) {
          buffer = &value;
        }
      }
      if (buffer == nullptr) {
        return Wrong(absl::StrCat("has no buffer ", number));
      }
      SS_RETURN_IF_ERROR(
          AddBuffer(*buffer, parameters, static_cast<int64_t>(chunk), experts));
      ++number;
    }
    return absl::OkStatus();
  }

  absl::Status AddBuffer(const PickleValue& buffer,
                         const std::vector<const ModuleParameter*>& parameters,
                         int64_t chunk, bool experts) {
    SS_ASSIGN_OR_RETURN(const auto by_dtype, buffer.AsEntries());
    if (by_dtype.size() != 1) {
      return Wrong(absl::StrCat("a buffer has ", by_dtype.size(),
                                " dtypes of parameters, expected one"));
    }
    const PickleValue& states = by_dtype.front().second;
    const FlatBuffer flat = LayOutFlat(
        *adder_.source().args, {adder_.source().is_first_stage, chunk, experts},
        parameters);
    const int64_t num_elements = CompactElements(flat);
    for (const FlatState& state : kFlatStates) {
      SS_ASSIGN_OR_RETURN(const PickleValue value, states.Get(state.key));
      SS_ASSIGN_OR_RETURN(const TorchTensor tensor, torch_.Tensor(value));
      if (tensor.shape != ckpt::Shape{num_elements} || !tensor.IsDense()) {
        return Wrong(absl::StrCat(
            state.key, " has shape ", ckpt::ToString(tensor.shape),
            ", by the arguments the buffer has ", num_elements, " elements"));
      }
      adder_.AddCheck(path_, tensor);
      SS_RETURN_IF_ERROR(AddState(flat, parameters, tensor, state.role));
    }
    return absl::OkStatus();
  }

  absl::Status AddState(const FlatBuffer& flat,
                        const std::vector<const ModuleParameter*>& parameters,
                        const TorchTensor& tensor, const char* role) {
    SourceTensor source;
    source.dtype = tensor.dtype;
    source.shape = tensor.shape;
    source.chunks.push_back(
        {ckpt::WholeBox(tensor.shape), file_, tensor.offset_bytes, 0});
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!adder_.IsMine(*parameters[i])) continue;
      const Parameter& parameter = *parameters[i]->parameter;
      if (parameter.is_copy) continue;
      SS_RETURN_IF_ERROR(
          adder_.AddFlat(parameter, CompactBegin(flat, static_cast<int64_t>(i)),
                         source, role));
    }
    return absl::OkStatus();
  }

  const std::string path_;
  const TorchFile& torch_;
  const int64_t file_;
  StateAdder& adder_;
};

// torch's state of an optimizer: parameters by number, those that decay before
// those that do not, each in the order of registration.
class PlainState {
 public:
  PlainState(const TorchFile& torch, int64_t file, StateAdder& adder)
      : torch_(torch), file_(file), adder_(adder) {}

  // Experts on ranks of their own have an optimizer of their own.
  absl::Status Add(const PickleValue& root,
                   const std::vector<Module>& modules) {
    const bool separates = adder_.source().args->layout.separates_experts();
    if (!separates) return AddOptimizer(root, modules, false);
    SS_ASSIGN_OR_RETURN(const auto optimizers, root.AsList());
    if (optimizers.size() != 2) {
      return absl::DataLossError(absl::StrCat(
          torch_.path(), ": has ", optimizers.size(),
          " optimizers, expected those of the dense parameters and of the "
          "experts"));
    }
    SS_RETURN_IF_ERROR(AddOptimizer(optimizers[0], modules, false));
    return AddOptimizer(optimizers[1], modules, true);
  }

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
    if (states.size() != order.size() ||
        (!masters.empty() && masters.size() != order.size())) {
      return absl::DataLossError(
          absl::StrCat(torch_.path(), ": the optimizer has state of ",
                       states.size(), " parameters, masters of ",
                       masters.size(), ", and there are ", order.size()));
    }
    for (const auto& [key, value] : states) {
      SS_ASSIGN_OR_RETURN(const int64_t index, key.AsInt());
      if (index < 0 || index >= std::ssize(order)) {
        return key.Wrong("the number of a parameter");
      }
      const ModuleParameter& parameter = *order[index];
      if (!adder_.IsMine(parameter)) continue;
      SS_RETURN_IF_ERROR(AddTensor(parameter, value, "exp_avg"));
      SS_RETURN_IF_ERROR(AddTensor(parameter, value, "exp_avg_sq"));
      // A parameter of 32 bits is its own master.
      TorchTensor master = parameter.tensor;
      if (!masters.empty()) {
        SS_ASSIGN_OR_RETURN(master, torch_.Tensor(masters[index]));
      }
      SS_RETURN_IF_ERROR(AddChecked(parameter, master, "master"));
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
      for (const Module& module : modules) {
        for (const ModuleParameter* p : ParametersOfBuffer(
                 module, adder_.source().args->layout, experts)) {
          if (Decays(*p) == (decay != 0)) order.push_back(p);
        }
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
};

}  // namespace

absl::StatusOr<OptimizerKind> AddOptimizer(const OptimizerSource& source,
                                           const std::vector<Module>& modules,
                                           ckpt::ForeignFilesBuilder& builder) {
  StateAdder adder(source, builder);
  SS_ASSIGN_OR_RETURN(const auto optimizer,
                      source.torch->root().Find("optimizer"));
  if (!optimizer.has_value() || optimizer->IsNone()) {
    return OptimizerKind::kNone;
  }
  if (!source.args->layout.distributed_optimizer) {
    SS_ASSIGN_OR_RETURN(const int64_t file,
                        adder.AddFile(source.torch->path()));
    SS_RETURN_IF_ERROR(
        PlainState(*source.torch, file, adder).Add(*optimizer, modules));
    return OptimizerKind::kPlain;
  }
  const std::string path = ckpt::JoinPath(source.folder, kLegacyOptimizerFile);
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Read(file));
  SS_ASSIGN_OR_RETURN(const int64_t number, adder.AddFile(path));
  SS_RETURN_IF_ERROR(
      DistributedState(path, torch, number, adder).Add(torch.root(), modules));
  return OptimizerKind::kDistributed;
}

absl::Status AddFlatObject(const OptimizerSource& source,
                           const TorchFile& torch, int64_t file,
                           const std::vector<Module>& modules,
                           ckpt::ForeignFilesBuilder& builder) {
  StateAdder adder(source, builder);
  SS_ASSIGN_OR_RETURN(const PickleValue root, torch.root().At(0));
  return DistributedState(torch.path(), torch, file, adder).Add(root, modules);
}

absl::Status AddBuckets(const OptimizerSource& source,
                        const std::vector<Module>& modules,
                        const FindBucket& find,
                        ckpt::ForeignFilesBuilder& builder) {
  StateAdder adder(source, builder);
  const bool separates = source.args->layout.separates_experts();
  for (const bool experts : {false, true}) {
    if (experts && !separates) continue;
    if (!experts && separates && !source.is_first_expert_rank) continue;
    int64_t number = 0;
    for (size_t chunk = 0; chunk < modules.size(); ++chunk) {
      const auto parameters =
          ParametersOfBuffer(modules[chunk], source.args->layout, experts);
      if (parameters.empty()) continue;
      const FlatPlace place = {source.is_first_stage,
                               static_cast<int64_t>(chunk), experts};
      const FlatBuffer flat = LayOutFlat(*source.args, place, parameters);
      for (const FlatState& state : kFlatStates) {
        for (size_t i = 0; i < parameters.size(); ++i) {
          const Parameter& parameter = *parameters[i]->parameter;
          if (!adder.IsMine(*parameters[i]) || parameter.is_copy) continue;
          const int64_t b = BucketOf(flat, static_cast<int64_t>(i));
          SS_ASSIGN_OR_RETURN(const SourceTensor* const bucket,
                              find({experts, number, b, state.key}));
          if (bucket->shape != ckpt::Shape{flat.buckets[b].unpadded}) {
            return absl::DataLossError(absl::StrCat(
                bucket->key, " has shape ", ckpt::ToString(bucket->shape),
                ", by the arguments the bucket has ", flat.buckets[b].unpadded,
                " elements"));
          }
          SS_RETURN_IF_ERROR(adder.AddFlat(
              parameter, flat.parameters[i].begin - flat.buckets[b].range.begin,
              *bucket, state.role));
        }
      }
      ++number;
    }
  }
  return absl::OkStatus();
}

absl::Status AddWeights(const OptimizerSource& source,
                        const std::vector<Module>& modules,
                        ckpt::ForeignFilesBuilder& builder) {
  StateAdder adder(source, builder);
  SS_ASSIGN_OR_RETURN(const int64_t file, adder.AddFile(source.torch->path()));
  for (const Module& module : modules) {
    for (const ModuleParameter& p : module.parameters) {
      if (!adder.IsMine(p)) continue;
      adder.AddCheck(source.torch->path(), p.tensor);
      SS_RETURN_IF_ERROR(adder.AddParameter(
          *p.parameter, "weight", p.tensor.dtype, file, p.tensor.offset_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
