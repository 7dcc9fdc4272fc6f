// The model that a config.json describes, found among the tensors of a source
// that has them under the names of Hugging Face.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_MODEL_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_MODEL_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/foreign_files.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/hf_names.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

struct HfModel {
  std::string config_text;
  ModelConfig model;  // its vocabulary padded
  // Found are indices into the source's tensors.
  HfMatch match;
  std::vector<LogicalTensor> tensors;
};

// `directory` is for messages. A copy of the embedding that a tied model has as
// its output layer is read, and compared with it.
// Errors: as MatchHfTensors; FailedPrecondition if the two differ.
absl::StatusOr<HfModel> FindHfModel(const std::string& directory,
                                    const HfConfig& config, std::string text,
                                    const SourceTensors& source);

// Adds the logical tensors, of which `source` has what match.found[i] is at
// positions[i]. Errors: as AddPieces.
absl::Status AddHfTensors(const HfModel& model, const SourceTensors& source,
                          const std::vector<int64_t>& positions,
                          const std::string& role,
                          ckpt::ForeignFilesBuilder& builder);

// What the state of a checkpoint says of it: `model` and `huggingface`.
nlohmann::json HfState(const HfModel& model);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_MODEL_H_
