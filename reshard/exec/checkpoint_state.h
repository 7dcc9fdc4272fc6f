// What `reshard` and `train` read out of a checkpoint besides tensors: the
// model in its state and the layout in its record, both JSON.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_CHECKPOINT_STATE_H_
#define SHARDSHIFT_RESHARD_EXEC_CHECKPOINT_STATE_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/reader.h"
#include "reshard/layout/content.h"
#include "reshard/layout/json_text.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

struct CheckpointState {
  nlohmann::json state;   // compared; holds `model`
  nlohmann::json record;  // not compared; may hold `layout`
  ModelConfig model;
  // Of the writer; unknown if the index was made anew from the parts.
  std::optional<Layout> layout;
};

// Both texts, and nothing of what they say.
// Errors: DataLoss for what is no JSON object.
absl::StatusOr<CheckpointState> ReadTexts(const ckpt::Reader& reader);

// Takes memory for no more than the checkpoint holds, whatever its texts say.
// Errors: DataLoss naming the key that is missing or wrong, or a layout that
// the model cannot have; FailedPrecondition for a model of more tensors than
// there are; whatever Validate says of the model.
absl::StatusOr<CheckpointState> ReadState(const ckpt::Reader& reader);

// The layout that wrote the checkpoint, for people: nullopt if its record does
// not tell it whole. What depends on it asks ReadState.
std::optional<Layout> StoredLayout(const ckpt::Reader& reader);

// The stored texts. Keys are sorted, numbers round-trip: equal values give
// equal bytes.
std::string StateText(const nlohmann::json& json);

// Weights if there is no optimizer state at all.
Content ContentOf(const ckpt::Reader& reader);

// Whether `tensors` are stored under every role of `content`, in the expected
// shapes, as F32; weights as any float dtype, also where they are kept beside
// masters.
// Errors: FailedPrecondition naming the first tensor that is missing, or of
// another shape or dtype, with what was expected and found.
absl::Status CheckStored(const ckpt::Reader& reader,
                         const std::vector<LogicalTensor>& tensors,
                         Content content);

// Whether nothing but `tensors` is stored, under roles of `content`; beside
// those of training also weights.
// Errors: FailedPrecondition naming the first other one.
absl::Status CheckNothingElse(const ckpt::Reader& reader,
                              const std::vector<LogicalTensor>& tensors,
                              Content content);

// The tensor of what the model computes with: the weight, or the master if that
// is all there is. Errors: NotFound if there is neither.
absl::StatusOr<int64_t> FindWeight(const ckpt::Reader& reader,
                                   absl::string_view name);

// Whether there is a weight beside the master.
bool KeepsWeight(const ckpt::Reader& reader, absl::string_view name);

// Names of all such tensors, in their order.
std::vector<std::string> KeptWeights(const ckpt::Reader& reader);

// A checkpoint that holds a model and nothing else.
struct WholeModel {
  CheckpointState state;
  std::vector<LogicalTensor> tensors;
  Content content = Content::kTraining;
};

// Errors: as ReadState, CheckStored and CheckNothingElse.
absl::StatusOr<WholeModel> ReadWholeModel(const ckpt::Reader& reader);

// Refuses a checkpoint from which a run of the model cannot go on: both of the
// above, for training.
absl::Status CheckTensors(const ckpt::Reader& reader,
                          const std::vector<LogicalTensor>& tensors);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_CHECKPOINT_STATE_H_
