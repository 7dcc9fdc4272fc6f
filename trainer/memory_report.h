// The memory of all ranks of a run, measured and by formula, for people and
// programs.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_MEMORY_REPORT_H_
#define SHARDSHIFT_TRAINER_MEMORY_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "trainer/comm/communicator.h"
#include "trainer/memory_formula.h"

namespace shardshift::trainer {

struct MemoryFigures {
  RankMemory measured;
  RankMemory formula;
};

// Those of every rank, by rank. Collective over `world`.
absl::StatusOr<std::vector<MemoryFigures>> GatherMemory(
    Communicator& world, const MemoryFigures& mine);

// What a rank holds for the whole run, and what activations will take.
std::string StartLine(const reshard::Layout& layout, int64_t rank,
                      const MemoryFigures& figures);

// Where activations took most.
std::string PeakLine(const std::vector<MemoryFigures>& ranks);

// An object a rank: {"rank", "measured": {"parameter_bytes", "gradient_bytes",
// "optimizer_bytes", "activation_bytes"}, "formula": the same}.
nlohmann::ordered_json ToJson(const std::vector<MemoryFigures>& ranks);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_MEMORY_REPORT_H_
