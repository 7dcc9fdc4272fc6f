// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "ckpt/core/box_copy.h"
#include "kernels/random.h"

namespace shardshift::trainer {
namespace {

bool IsOutputProjection(absl::string_view tensor) {
  return absl::EndsWith(tensor, "attention.proj.weight") ||
         absl::EndsWith(tensor, ".down.weight");
}

void InitializePiece(const reshard::LogicalTensor& tensor,
                     const reshard::Piece& piece, uint64_t seed, float std,
                     float* values) {
  const int64_t count = ckpt::NumElements(piece.box);
  if (absl::EndsWith(tensor.name, ".bias")) return;
  if (absl::EndsWith(tensor.name, "norm.weight")) {
    std::fill_n(values, count, 1.0F);
    return;
  }
  const uint64_t key = kernels::RandomKey(seed, tensor.name);
  ckpt::ForEachRun(ckpt::WholeBox(tensor.shape), piece.box,
                   [&](int64_t offset, int64_t run) {
                     for (int64_t i = 0; i < run; ++i) {
                       *values++ = std * kernels::Normal(key, offset + i);
                     }
                   });
}

reshard::Range Shift(const reshard::Range& range, int64_t by) {
  return {range.begin + by, range.end + by};
}

// Puts a buffer behind those that are there.
void Append(const reshard::LocalBuffer& local, Parameters::State& state) {
  const int64_t start = state.num_elements;
  for (size_t i = 0; i < local.parameters.size(); ++i) {
    state.parameters.push_back(local.parameters[i]);
    state.ranges.push_back(Shift(local.buffer.parameters[i], start));
  }
  for (size_t i = 0; i < local.buffer.buckets.size(); ++i) {
    state.buckets.push_back(
        {.range = Shift(local.buffer.buckets[i].range, start),
         .owned = Shift(local.owned[i], start)});
  }
  for (reshard::Piece piece : local.pieces) {
    piece.offset += start;
    state.pieces.push_back(std::move(piece));
  }
  state.num_elements += local.buffer.num_elements;
}

Parameters::State Concatenate(const reshard::RankState& rank_state) {
  Parameters::State state;
  for (const reshard::LocalBuffer& buffer : rank_state.buffers) {
    Append(buffer, state);
    if (!buffer.experts) state.experts_begin = state.num_elements;
  }
  return state;
}

}  // namespace

Parameters::Parameters(const reshard::RankState& rank_state)
    : state_(Concatenate(rank_state)), values_(state_.num_elements, 0.0F) {}

std::optional<int64_t> Parameters::Find(absl::string_view name) const {
  for (size_t i = 0; i < state_.parameters.size(); ++i) {
    if (state_.parameters[i].name == name) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

void Parameters::Initialize(const std::vector<reshard::LogicalTensor>& tensors,
                            uint64_t seed, double std, int64_t num_layers) {
  const double output_std =
      std / std::sqrt(2.0 * static_cast<double>(num_layers));
  for (size_t i = 0; i < state_.parameters.size(); ++i) {
    for (const reshard::Piece& piece : state_.parameters[i].pieces) {
      const reshard::LogicalTensor& tensor = tensors[piece.tensor];
      InitializePiece(tensor, piece, seed,
                      static_cast<float>(
                          IsOutputProjection(tensor.name) ? output_std : std),
                      data(static_cast<int64_t>(i)) + piece.offset);
    }
  }
}

}  // namespace shardshift::trainer
