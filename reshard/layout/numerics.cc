// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/numerics.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kMaxTensorGranularity = 8;
constexpr int64_t kMinDataGranularityBound = 16;
constexpr char kTensorFlag[] = "--tensor-granularity";
constexpr char kDataFlag[] = "--data-granularity";

absl::Status CheckCuts(const char* flag, int64_t granularity,
                       const char* quantity, int64_t value) {
  if (granularity >= 1 && value % granularity == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", granularity, " does not divide ", quantity, " ",
                   value, "; choose one that does"));
}

// Of the blocks the model has; 0 where it has none.
std::vector<std::pair<const char*, int64_t>> FeedForwardWidths(
    const ModelConfig& model) {
  return {{"--ffn-hidden-size",
           model.has_dense_layers() ? model.ffn_hidden_size : 0},
          {"--moe-ffn-hidden-size", model.moe_ffn_hidden_size},
          {"--moe-shared-expert-intermediate-size",
           model.moe_shared_expert_intermediate_size}};
}

bool IsPowerOfTwo(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

}  // namespace

int64_t ChooseTensorGranularity(const ModelConfig& model, int64_t seq_length) {
  int64_t granularity = kMaxTensorGranularity;
  for (const int64_t width :
       {seq_length, model.query_width(), model.qkv_width()}) {
    granularity = std::gcd(granularity, width);
  }
  for (const auto& [flag, width] : FeedForwardWidths(model)) {
    granularity = std::gcd(granularity, width);
  }
  return granularity;
}

int64_t ChooseDataGranularity(int64_t global_batch_size, int64_t data_ranks) {
  int64_t granularity = std::min(
      global_batch_size, std::max(kMinDataGranularityBound, data_ranks));
  while (global_batch_size % granularity != 0) --granularity;
  return granularity;
}

absl::StatusOr<int64_t> ChoosePaddedVocabSize(int64_t vocab_size,
                                              int64_t make_divisible_by,
                                              int64_t tensor_granularity,
                                              int64_t tensor_ranks) {
  const int64_t factor = std::max(tensor_granularity, tensor_ranks);
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  if (make_divisible_by < 1 || make_divisible_by > kLimit / factor) {
    return absl::InvalidArgumentError(
        absl::StrCat("--make-vocab-size-divisible-by is ", make_divisible_by,
                     ", expected 1 to ", kLimit / factor));
  }
  const int64_t multiple = make_divisible_by * factor;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

absl::Status CheckLayoutFits(const NumericsConstants& numerics,
                             const Layout& layout) {
  if (!IsPowerOfTwo(layout.tensor) ||
      numerics.tensor_granularity % layout.tensor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--tensor-model-parallel-size ", layout.tensor,
        " is no power of two that divides the run's tensor granularity ",
        numerics.tensor_granularity,
        "; choose one that does. The granularity divides --seq-length and "
        "every width that TP splits; ",
        kTensorFlag,
        " sets it, at the price of another loss curve from here on"));
  }
  const int64_t expert_tensor = layout.expert_tensor_size();
  if (!IsPowerOfTwo(expert_tensor) ||
      numerics.tensor_granularity % expert_tensor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--expert-tensor-parallel-size ", expert_tensor,
        " is no power of two that divides the run's tensor granularity ",
        numerics.tensor_granularity, "; choose one that does, or set ",
        kTensorFlag, " at the price of another loss curve from here on"));
  }
  if (layout.expert_copy_size() % layout.tensor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--expert-model-parallel-size ", layout.expert, " times ",
        "--expert-tensor-parallel-size ", expert_tensor,
        " is not divisible by --tensor-model-parallel-size ", layout.tensor,
        "; all tokens of a sample must reach the same copy of an expert, or "
        "the layout would show in its gradients"));
  }
  if (numerics.data_granularity % layout.data != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--data-parallel-size ", layout.data,
        " does not divide the run's data granularity ",
        numerics.data_granularity, "; choose one that does, or set ", kDataFlag,
        " at the price of another loss curve from here on"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const NumericsConstants& numerics,
                      const ModelConfig& model, int64_t seq_length,
                      int64_t global_batch_size) {
  const int64_t gt = numerics.tensor_granularity;
  if (!IsPowerOfTwo(gt)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTensorFlag, " is ", gt, ", expected a power of two"));
  }
  SS_RETURN_IF_ERROR(CheckCuts(kTensorFlag, gt, "--seq-length", seq_length));
  for (const auto& [flag, width] : FeedForwardWidths(model)) {
    SS_RETURN_IF_ERROR(CheckCuts(kTensorFlag, gt, flag, width));
  }
  SS_RETURN_IF_ERROR(
      CheckCuts(kTensorFlag, gt, "the attention width", model.query_width()));
  SS_RETURN_IF_ERROR(
      CheckCuts(kTensorFlag, gt, "the fused QKV width", model.qkv_width()));
  SS_RETURN_IF_ERROR(CheckCuts(kTensorFlag, gt, "the padded vocabulary",
                               model.padded_vocab_size));
  return CheckCuts(kDataFlag, numerics.data_granularity, "--global-batch-size",
                   global_batch_size);
}

nlohmann::json ToJson(const NumericsConstants& numerics) {
  return {{"tensor_granularity", numerics.tensor_granularity},
          {"data_granularity", numerics.data_granularity}};
}

absl::StatusOr<NumericsConstants> NumericsFromJson(const nlohmann::json& json) {
  NumericsConstants numerics;
  for (const auto& [key, value] :
       {std::pair("tensor_granularity", &numerics.tensor_granularity),
        std::pair("data_granularity", &numerics.data_granularity)}) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number_integer() ||
        it->get<int64_t>() < 1) {
      return absl::DataLossError(
          absl::StrCat("checkpoint state: numerics.", key,
                       " is missing or no positive integer"));
    }
    *value = it->get<int64_t>();
  }
  return numerics;
}

}  // namespace shardshift::reshard
