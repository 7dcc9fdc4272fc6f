// What a *_model_states.pt of DeepSpeed holds.
// Source: distributed-optimizer.md 4.1.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_MODEL_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_MODEL_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/foreign_checkpoint.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/sharded_tensors.h"

namespace shardshift::reshard {

struct ShapedName {
  std::string name;
  ckpt::Shape shape;
  int64_t num_elements = 0;
};

struct NamedTensor {
  std::string name;
  TorchTensor tensor;
};

// checkpoint_parallel_dimensions.
struct DeepSpeedDegrees {
  int64_t pipeline = 1;
  int64_t tensor = 1;

  friend bool operator==(const DeepSpeedDegrees&,
                         const DeepSpeedDegrees&) = default;
};

struct DeepSpeedModel {
  std::string path;
  std::optional<DeepSpeedDegrees> degrees;  // newer versions tell
  // Of what the optimizer has, by group or ZeRO-3's sub-group, in flat order;
  // nullopt without ZeRO.
  std::optional<std::vector<std::vector<ShapedName>>> param_shapes;
  std::vector<NamedTensor> module;  // in the module's order
  std::vector<ShapedName> frozen;
  std::vector<NamedTensor> frozen_fragments;  // whole but for ZeRO-3
  std::map<std::string, std::string> shared;  // alias -> source, as told
  std::vector<std::string> buffers;           // persistent ones
  int64_t global_steps = 0;
  nlohmann::json facts;               // small values, for the state
  std::vector<std::string> left_out;  // entries that nobody reads
};

// Errors: DataLoss naming the file and the entry that is missing or wrong.
absl::StatusOr<DeepSpeedModel> ReadDeepSpeedModel(const OpenedTorch& source);

// The tensors of a mapping of names, in its order; `left_out` gets what is none
// and not None either, as "WHAT.name". Errors: DataLoss, without the path.
absl::StatusOr<std::vector<NamedTensor>> ReadNamedTensors(
    const OpenedTorch& source, const PickleValue& mapping,
    absl::string_view what, std::vector<std::string>& left_out);

// Names of the module that stand for another: as the file tells, and those that
// are the same view of a storage as an earlier one.
std::map<std::string, std::string> AliasesOf(const DeepSpeedModel& model);

// What a reader of DeepSpeed gathers.
struct DeepSpeedContents {
  ShardedTensors tensors;
  std::vector<ReplicaCheck> replicas;  // but for those of the tensors
  nlohmann::json generic = nlohmann::json::object();  // of the state
  std::map<std::string, std::string> aliases;         // left out for a source
  std::vector<std::string> notes;
  std::vector<std::string> left_out;
};

// Adds as `weight` what of the module and of the whole frozen parameters is
// neither in `done` nor an alias; these it keeps. `file` is the model's.
absl::Status AddWeights(const DeepSpeedModel& model,
                        const absl::flat_hash_set<std::string>& done,
                        int64_t file, DeepSpeedContents& contents);

// The checkpoint of what was gathered, at the model's global_steps. Weights
// that have masters become those to compare them with.
absl::StatusOr<ForeignCheckpoint> Finish(const std::string& path,
                                         absl::string_view format,
                                         const DeepSpeedModel& model,
                                         DeepSpeedContents contents);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_MODEL_H_
