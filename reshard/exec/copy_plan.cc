// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/copy_plan.h"

#include <chrono>
#include <map>
#include <utility>

#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/executors.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/write_assignment.h"

namespace shardshift::reshard {
namespace {

// Enough to see the rate of a fast disk, and over in seconds on a slow one.
constexpr int64_t kProbeBytes = int64_t{256} << 20;
constexpr std::chrono::duration<double> kProbeTime(1.0);

}  // namespace

absl::StatusOr<CopyPlan> PlanCopy(const ckpt::Reader& source,
                                  const ModelConfig& model,
                                  const Layout& layout) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  SS_RETURN_IF_ERROR(CheckTensors(source, tensors));
  const std::vector<std::vector<WriteItem>> items =
      AssignWriters(model, layout);
  CopyPlan plan;
  std::map<std::pair<int64_t, int64_t>, TensorCopy> copies;
  for (size_t rank = 0; rank < items.size(); ++rank) {
    if (items[rank].empty()) continue;
    const auto part = std::ssize(plan.parts);
    plan.parts.push_back(
        {static_cast<int64_t>(rank), FragmentSpecs(tensors, items[rank])});
    for (int64_t i = 0; i < std::ssize(items[rank]); ++i) {
      const WriteItem& item = items[rank][i];
      copies[{item.tensor, item.role}].targets.push_back({part, i});
    }
  }
  for (auto& [key, copy] : copies) {
    SS_ASSIGN_OR_RETURN(copy.source,
                        source.FindTensor(tensors[key.first].name,
                                          kOptimizerRoles[key.second]));
    plan.tensors.push_back(std::move(copy));
  }
  return plan;
}

int64_t PayloadBytes(const ckpt::Reader& source) {
  int64_t num_bytes = 0;
  for (const ckpt::Fragment& fragment : source.table().fragments) {
    num_bytes += FragmentBytes(source.table(), fragment);
  }
  return num_bytes;
}

absl::StatusOr<double> ProbeReads(const ckpt::Reader& source) {
  if (!source.has_parts()) return 0;
  SS_ASSIGN_OR_RETURN(ckpt::StagingBuffer buffer, ckpt::StagingBuffer::Take());
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> seconds(0);
  int64_t num_bytes = 0;
  for (const ckpt::Fragment& fragment : source.table().fragments) {
    for (const ckpt::Block& block : fragment.blocks) {
      if (block.stored_bytes < ckpt::kBlockBytes) continue;
      SS_ASSIGN_OR_RETURN(const auto file, source.PartFile(fragment.part));
      SS_RETURN_IF_ERROR(file->ReadAt(
          block.offset_bytes, buffer.bytes().first(block.stored_bytes)));
      num_bytes += block.stored_bytes;
      seconds = std::chrono::steady_clock::now() - begin;
      if (num_bytes >= kProbeBytes || seconds > kProbeTime) {
        return static_cast<double>(num_bytes) / seconds.count();
      }
    }
  }
  return num_bytes == 0 ? 0 : static_cast<double>(num_bytes) / seconds.count();
}

}  // namespace shardshift::reshard
