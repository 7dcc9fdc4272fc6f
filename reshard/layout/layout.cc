// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/layout.h"

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/stages.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kMaxWorldSize = int64_t{1} << 20;
constexpr char kTensor[] = "--tensor-model-parallel-size";
constexpr char kPipeline[] = "--pipeline-model-parallel-size";
constexpr char kData[] = "--data-parallel-size";
constexpr char kExpert[] = "--expert-model-parallel-size";
constexpr char kExpertTensor[] = "--expert-tensor-parallel-size";

absl::Status CheckDivides(const char* quantity, int64_t value, const char* flag,
                          int64_t ranks) {
  if (value % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(quantity, " ", value, " is not divisible by ", flag, " ",
                   ranks, "; choose a size that divides it"));
}

absl::Status CheckAxis(const char* flag, int64_t size) {
  if (size >= 1 && size <= kMaxWorldSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is ", size, ", expected 1 to ", kMaxWorldSize));
}

absl::Status CheckAxes(const Layout& layout) {
  SS_RETURN_IF_ERROR(CheckAxis(kTensor, layout.tensor));
  SS_RETURN_IF_ERROR(CheckAxis(kPipeline, layout.pipeline));
  SS_RETURN_IF_ERROR(CheckAxis(kData, layout.data));
  SS_RETURN_IF_ERROR(CheckAxis(kExpert, layout.expert));
  SS_RETURN_IF_ERROR(CheckAxis(kExpertTensor, layout.expert_tensor_size()));
  if (layout.world_size() <= kMaxWorldSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(layout.world_size(), " ranks (", ToString(layout),
                   "), expected at most ", kMaxWorldSize));
}

absl::Status CheckAttention(const ModelConfig& model, int64_t tp) {
  SS_RETURN_IF_ERROR(CheckDivides("--num-attention-heads",
                                  model.num_attention_heads, kTensor, tp));
  // With fewer groups than ranks the fused rows still split evenly, off the
  // group borders (parallel-layout.md 4.6).
  if (model.num_query_groups % tp != 0 && tp % model.num_query_groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--num-query-groups ", model.num_query_groups,
        " neither divides nor is divisible by ", kTensor, " ", tp));
  }
  return CheckDivides("fused QKV width", model.qkv_width(), kTensor, tp);
}

absl::Status CheckNoExpertAxes(const Layout& layout) {
  const bool given = layout.expert != 1 || layout.expert_tensor != 0;
  if (!given) return absl::OkStatus();
  const bool by_expert = layout.expert != 1;
  return absl::InvalidArgumentError(absl::StrCat(
      by_expert ? kExpert : kExpertTensor, " is ",
      by_expert ? layout.expert : layout.expert_tensor,
      ", but the model has no experts (--num-experts); drop the flag"));
}

absl::Status CheckExperts(const ModelConfig& model, const Layout& layout) {
  const int64_t etp = layout.expert_tensor_size();
  SS_RETURN_IF_ERROR(CheckDivides(
      "--moe-ffn-hidden-size", model.moe_ffn_hidden_size, kExpertTensor, etp));
  SS_RETURN_IF_ERROR(CheckDivides("--moe-shared-expert-intermediate-size",
                                  model.moe_shared_expert_intermediate_size,
                                  kTensor, layout.tensor));
  SS_RETURN_IF_ERROR(
      CheckDivides("--num-experts", model.num_experts, kExpert, layout.expert));
  const int64_t ranks = layout.tensor * layout.data;
  if (ranks % (etp * layout.expert) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a pipeline stage has ", ranks, " ranks (", kTensor, " ", layout.tensor,
      " times ", kData, " ", layout.data, "), not divisible by ", kExpert, " ",
      layout.expert, " times ", kExpertTensor, " ", etp,
      "; choose sizes whose product divides it"));
}

}  // namespace

RankCoordinates CoordinatesOf(const Layout& layout, int64_t rank) {
  return {.tensor = rank % layout.tensor,
          .pipeline = rank / (layout.tensor * layout.data),
          .data = rank / layout.tensor % layout.data};
}

int64_t RankOf(const Layout& layout, const RankCoordinates& at) {
  return at.tensor + layout.tensor * (at.data + layout.data * at.pipeline);
}

ExpertCoordinates ExpertCoordinatesOf(const Layout& layout, int64_t rank) {
  const int64_t etp = layout.expert_tensor_size();
  return {.tensor = rank % etp,
          .expert = rank / etp % layout.expert,
          .data = rank / (etp * layout.expert) % layout.expert_data_size(),
          .pipeline = rank / (layout.tensor * layout.data)};
}

int64_t RankOf(const Layout& layout, const ExpertCoordinates& at) {
  const int64_t replica = at.data + layout.expert_data_size() * at.pipeline;
  return at.tensor +
         layout.expert_tensor_size() * (at.expert + layout.expert * replica);
}

ExpertRange ExpertsOf(const ModelConfig& model, const Layout& layout,
                      int64_t expert_rank) {
  const int64_t experts = model.num_experts / layout.expert;
  return {.begin = expert_rank * experts, .end = (expert_rank + 1) * experts};
}

absl::Status Validate(const ModelConfig& model, const Layout& layout) {
  SS_RETURN_IF_ERROR(Validate(model));
  SS_RETURN_IF_ERROR(CheckAxes(layout));
  SS_RETURN_IF_ERROR(CheckAttention(model, layout.tensor));
  if (model.has_experts()) {
    SS_RETURN_IF_ERROR(CheckExperts(model, layout));
  } else {
    SS_RETURN_IF_ERROR(CheckNoExpertAxes(layout));
  }
  if (model.has_dense_layers()) {
    SS_RETURN_IF_ERROR(CheckDivides("--ffn-hidden-size", model.ffn_hidden_size,
                                    kTensor, layout.tensor));
  }
  SS_RETURN_IF_ERROR(CheckDivides("padded vocabulary size",
                                  model.padded_vocab_size, kTensor,
                                  layout.tensor));
  return ValidateStages(model, layout);
}

}  // namespace shardshift::reshard
