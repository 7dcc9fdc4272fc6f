// What a checkpoint tells of the run that wrote it: its state, which a resume
// takes over, and its record. Keys: FORMAT.md, S3 and S4.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_RUN_STATE_H_
#define SHARDSHIFT_TRAINER_RUN_STATE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "trainer/activation_options.h"
#include "trainer/optim/loss_scale.h"
#include "trainer/run_config.h"

namespace shardshift::trainer {

struct RunProgress {
  int64_t step = 0;  // iterations done, skipped ones included
  int64_t consumed_samples = 0;
  // Of these, what did not update the weights, as gradients overflowed.
  int64_t skipped_iterations = 0;
  int64_t skipped_samples = 0;
  std::optional<LossScale> loss_scale = std::nullopt;  // in fp16
};

// What a checkpoint's state holds.
struct StoredRun {
  RunConfig config;
  RunProgress progress;
  nlohmann::json data;  // identity of the data
};

nlohmann::json ToState(const StoredRun& run);

// Errors: DataLoss naming the key that is missing, mistyped or out of range.
absl::StatusOr<StoredRun> RunFromState(const nlohmann::json& state);

// What a checkpoint's record holds.
nlohmann::json ToRecord(const reshard::Layout& layout, int64_t micro_batch_size,
                        const ActivationOptions& activations = {});

// What a record tells of them; it may be of any format.
struct StoredRecord {
  std::optional<int64_t> micro_batch_size;
  ActivationOptions activations;
};

// Errors: DataLoss naming the key that is mistyped or out of range.
absl::StatusOr<StoredRecord> RecordFromJson(const nlohmann::json& record);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_RUN_STATE_H_
