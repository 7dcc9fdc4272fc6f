// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/layout.h"

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/flat_buffer.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kMaxWorldSize = int64_t{1} << 20;

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

}  // namespace

RankCoordinates CoordinatesOf(const Layout& layout, int64_t rank) {
  return {.tensor = rank % layout.tensor,
          .pipeline = rank / (layout.tensor * layout.data),
          .data = rank / layout.tensor % layout.data};
}

int64_t RankOf(const Layout& layout, const RankCoordinates& at) {
  return at.tensor + layout.tensor * (at.data + layout.data * at.pipeline);
}

absl::Status Validate(const ModelConfig& model, const Layout& layout) {
  constexpr char kTensor[] = "--tensor-model-parallel-size";
  constexpr char kPipeline[] = "--pipeline-model-parallel-size";
  constexpr char kData[] = "--data-parallel-size";
  SS_RETURN_IF_ERROR(Validate(model));
  SS_RETURN_IF_ERROR(CheckAxis(kTensor, layout.tensor));
  SS_RETURN_IF_ERROR(CheckAxis(kPipeline, layout.pipeline));
  SS_RETURN_IF_ERROR(CheckAxis(kData, layout.data));
  if (layout.world_size() > kMaxWorldSize) {
    return absl::InvalidArgumentError(
        absl::StrCat(layout.world_size(), " ranks (", ToString(layout),
                     "), expected at most ", kMaxWorldSize));
  }
  const int64_t tp = layout.tensor;
  SS_RETURN_IF_ERROR(CheckDivides("--num-attention-heads",
                                  model.num_attention_heads, kTensor, tp));
  // With fewer groups than ranks the fused rows still split evenly, off the
  // group borders (parallel-layout.md 4.6).
  if (model.num_query_groups % tp != 0 && tp % model.num_query_groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--num-query-groups ", model.num_query_groups,
        " neither divides nor is divisible by ", kTensor, " ", tp));
  }
  SS_RETURN_IF_ERROR(
      CheckDivides("fused QKV width", model.qkv_width(), kTensor, tp));
  SS_RETURN_IF_ERROR(
      CheckDivides("--ffn-hidden-size", model.ffn_hidden_size, kTensor, tp));
  SS_RETURN_IF_ERROR(CheckDivides("padded vocabulary size",
                                  model.padded_vocab_size, kTensor, tp));
  return CheckDivides("--num-layers", model.num_layers, kPipeline,
                      layout.pipeline);
}

LayerRange LayersOfStage(const ModelConfig& model, const Layout& layout,
                         int64_t stage) {
  const int64_t per_stage = model.num_layers / layout.pipeline;
  return {.begin = stage * per_stage, .end = (stage + 1) * per_stage};
}

std::string ToString(const Layout& layout) {
  return absl::StrCat(
      "TP", layout.tensor, " PP", layout.pipeline, " DP", layout.data,
      layout.distributed_optimizer ? " distributed-optimizer" : "");
}

std::string ToString(const std::optional<Layout>& layout) {
  return layout.has_value() ? ToString(*layout) : "an unknown layout";
}

nlohmann::json ToJson(const Layout& layout) {
  return {{"tensor_model_parallel_size", layout.tensor},
          {"pipeline_model_parallel_size", layout.pipeline},
          {"data_parallel_size", layout.data},
          {"use_distributed_optimizer", layout.distributed_optimizer},
          {"bucket_size", DefaultBucketSize(layout.data)}};
}

absl::StatusOr<Layout> LayoutFromJson(const nlohmann::json& json) {
  Layout layout;
  const auto read = [&json](const char* key, auto& value) {
    const auto it = json.find(key);
    if (it == json.end()) return false;
    using Value = std::remove_reference_t<decltype(value)>;
    if (std::is_same_v<Value, bool> ? !it->is_boolean()
                                    : !it->is_number_integer()) {
      return false;
    }
    it->get_to(value);
    return true;
  };
  if (!json.is_object() || !read("tensor_model_parallel_size", layout.tensor) ||
      !read("pipeline_model_parallel_size", layout.pipeline) ||
      !read("data_parallel_size", layout.data) ||
      !read("use_distributed_optimizer", layout.distributed_optimizer)) {
    return absl::DataLossError(
        "checkpoint record: layout is missing, incomplete or mistyped");
  }
  return layout;
}

}  // namespace shardshift::reshard
