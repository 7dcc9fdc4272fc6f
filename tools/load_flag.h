// What `train --load` starts from.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_LOAD_FLAG_H_
#define SHARDSHIFT_TOOLS_LOAD_FLAG_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "tools/known_model.h"
#include "tools/resolve_run.h"
#include "trainer/comm/communicator.h"

namespace shardshift {

// Takes whole lines for a person.
using PrintLine = std::function<void(const std::string&)>;

struct LoadFlags {
  std::optional<std::string> path;
  bool if_present = false;
  bool finetune = false;
  PrintLine print;
};

// A run to go on with, or weights to start from.
struct LoadedCheckpoint {
  std::shared_ptr<const ckpt::Reader> reader;
  CheckpointRun checkpoint = {};
  std::optional<KnownModel> weights = std::nullopt;

  bool is_run() const { return !weights.has_value(); }
};

// The checkpoint of --load, if there is to be one.
// Errors: as ResolveCheckpoint, ReadState and CheckTensors; with --finetune as
// OpenSource and ReadWholeModel.
absl::StatusOr<std::optional<LoadedCheckpoint>> FindCheckpoint(
    const LoadFlags& flags);

// The same on all processes of a job: the first one chooses. Collective.
absl::StatusOr<std::optional<LoadedCheckpoint>> FindCheckpointTogether(
    trainer::Communicator& world, const LoadFlags& flags);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_LOAD_FLAG_H_
