// SPDX-License-Identifier: Apache-2.0
#include "trainer/replica_check.h"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

// The weights of a rank, and what it updates them from.
struct Weights {
  const Parameters& parameters;
  const Optimizer& optimizer;
};

uint64_t HashOf(const Weights& weights, size_t index) {
  const auto i = static_cast<int64_t>(index);
  const std::span values(
      weights.parameters.data(i),
      static_cast<size_t>(weights.parameters.state().ranges[index].size()));
  const std::span<const float> masters = weights.optimizer.CommonMasters(i);
  const std::array<uint64_t, 2> hashes = {
      ckpt::Checksum64(std::as_bytes(values)),
      ckpt::Checksum64(std::as_bytes(masters))};
  return ckpt::Checksum64(std::as_bytes(std::span(hashes)));
}

// Of the parameters that `is_shared` by the ranks of `group`; `axis` names
// them in messages.
absl::Status CheckGroup(Communicator& group, const char* axis,
                        const Weights& weights,
                        const std::function<bool(const reshard::Parameter&,
                                                 bool of_experts)>& is_shared) {
  if (group.size() == 1) return absl::OkStatus();
  const Parameters::State& state = weights.parameters.state();
  std::vector<size_t> shared;
  std::vector<uint64_t> mine;
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    if (!is_shared(state.parameters[i], state.IsOfExperts(state.ranges[i]))) {
      continue;
    }
    shared.push_back(i);
    mine.push_back(HashOf(weights, i));
  }
  std::vector<uint64_t> all(mine.size() * group.size());
  SS_RETURN_IF_ERROR(group.AllGather(std::as_bytes(std::span(mine)),
                                     std::as_writable_bytes(std::span(all))));
  for (size_t i = 0; i < shared.size(); ++i) {
    for (int rank = 1; rank < group.size(); ++rank) {
      if (all[rank * mine.size() + i] == all[i]) continue;
      return absl::DataLossError(absl::StrCat(
          "the weights ", state.parameters[shared[i]].name, " of ", axis,
          " ranks 0 and ", rank,
          " should be equal and are not; go on from the last checkpoint, and "
          "test the memory of these machines if it happens again"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReplicas(Mesh& mesh, const Parameters& parameters,
                           const Optimizer& optimizer) {
  using reshard::Parameter;
  const Weights weights = {parameters, optimizer};
  SS_RETURN_IF_ERROR(CheckGroup(
      mesh.data(), "data-parallel", weights,
      [](const Parameter&, bool of_experts) { return !of_experts; }));
  SS_RETURN_IF_ERROR(CheckGroup(
      mesh.tensor(), "tensor-parallel", weights,
      [](const Parameter& parameter, bool of_experts) {
        return !of_experts && parameter.split == reshard::Split::kReplicated;
      }));
  if (mesh.expert_data() != nullptr) {
    SS_RETURN_IF_ERROR(CheckGroup(
        *mesh.expert_data(), "expert-data-parallel", weights,
        [](const Parameter&, bool of_experts) { return of_experts; }));
  }
  if (mesh.embedding() == nullptr) return absl::OkStatus();
  return CheckGroup(*mesh.embedding(), "embedding-sharing", weights,
                    [](const Parameter& parameter, bool) {
                      return parameter.shared_embedding;
                    });
}

}  // namespace shardshift::trainer
