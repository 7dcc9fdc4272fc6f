// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/logical_state.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/box_copy.h"
#include "ckpt/core/status_macros.h"
#include "kernels/random.h"
#include "reshard/layout/parameters.h"

namespace shardshift::trainer {
namespace {

using reshard::LogicalTensor;

// Calls fn(logical offset, local offset, count) for each run of a piece.
template <typename Fn>
void ForEachRun(const LogicalTensor& tensor, const reshard::Piece& piece,
                Fn fn) {
  int64_t local = 0;
  ckpt::ForEachRun(ckpt::WholeBox(tensor.shape), piece.box,
                   [&](int64_t offset, int64_t count) {
                     fn(offset, local, count);
                     local += count;
                   });
}

constexpr uint32_t kNoHolder = 0xffffffff;  // a NaN that training never makes

// Adds what another rank holds.
absl::Status Merge(const LogicalTensor& tensor, const std::vector<float>& from,
                   std::vector<float>& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const auto known = std::bit_cast<uint32_t>(to[i]);
    if (bits == kNoHolder || bits == known) continue;
    if (known != kNoHolder) {
      return absl::DataLossError(
          absl::StrCat(tensor.name, "[", i, "] is ", to[i], " and ", from[i]));
    }
    to[i] = from[i];
  }
  return absl::OkStatus();
}

}  // namespace

LogicalValues RandomWeights(const reshard::ModelConfig& model) {
  LogicalValues values;
  for (const LogicalTensor& tensor : reshard::LogicalTensors(model)) {
    const float mean = absl::EndsWith(tensor.name, "norm.weight") ? 1.0F : 0.0F;
    const uint64_t key = kernels::RandomKey(5, tensor.name);
    std::vector<float>& out = values.emplace_back();
    for (int64_t i = 0; i < ckpt::NumElements(tensor.shape); ++i) {
      out.push_back(mean + 0.3F * kernels::Normal(key, i));
    }
  }
  return values;
}

absl::Status SetState(const LogicalValues& values, const RunConfig& config,
                      RankModel& model, int64_t role) {
  const std::vector<LogicalTensor> tensors =
      reshard::LogicalTensors(config.model);
  for (const reshard::Piece& piece : model.parameters().state().pieces) {
    float* local = model.optimizer().StateOf(piece, role);
    ForEachRun(tensors[piece.tensor], piece,
               [&](int64_t offset, int64_t at, int64_t count) {
                 std::copy_n(values[piece.tensor].data() + offset, count,
                             local + at);
               });
  }
  return role == 0 ? model.optimizer().WeightsFromMasters() : absl::OkStatus();
}

absl::StatusOr<LogicalValues> GatherState(const RunConfig& config, Mesh& mesh,
                                          RankModel& model, int64_t role) {
  const std::vector<LogicalTensor> tensors =
      reshard::LogicalTensors(config.model);
  LogicalValues mine;
  for (const LogicalTensor& tensor : tensors) {
    mine.emplace_back(ckpt::NumElements(tensor.shape),
                      std::bit_cast<float>(kNoHolder));
  }
  for (const reshard::Piece& piece : model.parameters().state().pieces) {
    const float* local = model.optimizer().StateOf(piece, role);
    ForEachRun(tensors[piece.tensor], piece,
               [&](int64_t offset, int64_t at, int64_t count) {
                 std::copy_n(local + at, count,
                             mine[piece.tensor].data() + offset);
               });
  }
  LogicalValues merged = mine;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (int root = 0; root < mesh.world().size(); ++root) {
      std::vector<float> theirs = mine[i];
      SS_RETURN_IF_ERROR(mesh.world().Broadcast(
          std::as_writable_bytes(std::span(theirs)), root));
      SS_RETURN_IF_ERROR(Merge(tensors[i], theirs, merged[i]));
    }
    for (const float value : merged[i]) {
      if (std::bit_cast<uint32_t>(value) != kNoHolder) continue;
      return absl::DataLossError(
          absl::StrCat("no rank holds an element of ", tensors[i].name));
    }
  }
  return merged;
}

}  // namespace shardshift::trainer
