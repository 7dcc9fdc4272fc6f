// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_exports.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/weights_check.h"
#include "reshard/layout/content.h"

namespace shardshift::reshard {

namespace {

absl::Status CheckWeightDType(ckpt::DType dtype) {
  if (dtype == ckpt::DType::kF32 || dtype == ckpt::DType::kBF16 ||
      dtype == ckpt::DType::kF16) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Megatron has no run with weights of dtype ",
                   ckpt::Name(dtype), "; choose --dtype F32, BF16 or F16"));
}

// A plain optimizer takes weights of 32 bits for their own masters.
absl::Status CheckKeptWeights(const ckpt::Reader& source,
                              const MegatronTarget& target) {
  const bool has_place = target.content == Content::kWeights ||
                         target.args.layout.distributed_optimizer ||
                         target.weight_dtype != ckpt::DType::kF32;
  if (has_place) return absl::OkStatus();
  const std::vector<std::string> kept = KeptWeights(source);
  if (kept.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "there is no place for ", DescribeKept(kept),
      ", where weights are F32 and the optimizer is not distributed; choose "
      "--use-distributed-optimizer or --dtype BF16"));
}

}  // namespace

absl::StatusOr<MegatronSource> ReadMegatronSource(const ckpt::Reader& source,
                                                  Format format,
                                                  const ExportChoice& choice) {
  if (choice.choice.select != "*") {
    return absl::InvalidArgumentError(
        "--select makes no whole model, as Megatron's checkpoint has to be");
  }
  MegatronSource result;
  SS_ASSIGN_OR_RETURN(WholeModel model, ReadWholeModel(source));
  result.tensors = std::move(model.tensors);
  const Content stored = result.stored = model.content;
  MegatronTargetChoice target = {
      .format = format,
      .layout = choice.layout,
      .content = choice.choice.weights_only ? Content::kWeights : stored,
      .iteration = source.step(),
      .dtype = choice.choice.dtype};
  SS_ASSIGN_OR_RETURN(
      const int64_t first,
      source.FindTensor(result.tensors.front().name, RolesOf(stored).front()));
  const ckpt::DType first_dtype = source.table().tensors[first].dtype;
  if (stored == Content::kWeights && !target.dtype.has_value()) {
    target.dtype = first_dtype;
  }
  SS_ASSIGN_OR_RETURN(result.target, PlanMegatronTarget(model.state, target));
  SS_RETURN_IF_ERROR(CheckWeightDType(result.target.weight_dtype));
  SS_RETURN_IF_ERROR(
      Annotate(ckpt::CheckConversion(first_dtype, result.target.weight_dtype),
               "--dtype"));
  if (stored == Content::kTraining && target.content == Content::kWeights) {
    result.target.left_out.emplace_back("optimizer state");
  }
  SS_RETURN_IF_ERROR(CheckKeptWeights(source, result.target));
  return result;
}

absl::StatusOr<std::vector<StoragePiece>> MegatronExports::Pieces(
    const Parameter& parameter, absl::string_view role, int64_t replica) {
  std::string to(role);
  if (replica > 0) absl::StrAppend(&to, "@", replica);
  for (const Piece& piece : parameter.pieces) {
    ExportedTensor& exported = exported_[{piece.tensor, to}];
    exported.name = megatron_.tensors[piece.tensor].name;
    exported.role = to;
    SS_ASSIGN_OR_RETURN(exported.source,
                        role == "weight"
                            ? FindWeight(source_, exported.name)
                            : source_.FindTensor(exported.name, role));
  }
  return StoragePiecesOf(parameter.pieces, megatron_.tensors, to,
                         DTypeOf(role));
}

ckpt::DType MegatronExports::DTypeOf(absl::string_view role) const {
  return role == "weight" ? megatron_.target.weight_dtype : ckpt::DType::kF32;
}

std::vector<ExportedTensor> MegatronExports::Take() && {
  std::vector<ExportedTensor> tensors;
  tensors.reserve(exported_.size());
  for (auto& [key, exported] : exported_) {
    tensors.push_back(std::move(exported));
  }
  return tensors;
}

}  // namespace shardshift::reshard
