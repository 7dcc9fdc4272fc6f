// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_optimizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/flat_buckets.h"
#include "reshard/formats/megatron_plain_state.h"
#include "reshard/formats/megatron_ranks.h"
#include "reshard/formats/megatron_state_adder.h"
#include "reshard/layout/flat_buffer.h"

namespace shardshift::reshard {
namespace {

// distrib_optim.pt: flat buffers, of which the padding at the ends of buckets
// is left out.
class DistributedState {
 public:
  DistributedState(std::string path, const TorchFile& torch, int64_t file,
                   StateAdder& adder)
      : path_(std::move(path)), torch_(torch), file_(file), adder_(adder) {}

  absl::Status Add(const PickleValue& root,
                   const std::vector<Module>& modules) {
    SS_ASSIGN_OR_RETURN(const auto optimizers,
                        adder_.OptimizersIn(root, path_));
    if (optimizers.size() == 1) {
      return AddOptimizer(optimizers[0], modules, false);
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
    SS_ASSIGN_OR_RETURN(
        const bool has_stepped,
        AddPlainState(*source.torch, file, *optimizer, modules, adder));
    return has_stepped ? OptimizerKind::kPlain : OptimizerKind::kNoStepYet;
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
