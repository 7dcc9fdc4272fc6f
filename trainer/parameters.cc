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
         absl::EndsWith(tensor, "mlp.down.weight");
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

}  // namespace

Parameters::Parameters(reshard::LocalBuffer state)
    : state_(std::move(state)), values_(state_.buffer.num_elements, 0.0F) {}

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
