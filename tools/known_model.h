// The model of a run where a file tells it: a config.json of Hugging Face, or
// the checkpoint whose weights a run starts from.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_KNOWN_MODEL_H_
#define SHARDSHIFT_TOOLS_KNOWN_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/model_config.h"

namespace shardshift {

struct KnownModel {
  reshard::ModelConfig model;
  std::string origin;  // for messages: "--hf-config config.json"
};

// Errors: InvalidArgument if there is no such file; as ParseHfConfig.
absl::StatusOr<KnownModel> ReadHfConfigFlag(const std::string& path);

// Whether both say the same, but for the padding of the vocabulary.
// Errors: InvalidArgument naming the first key that differs.
absl::Status CheckSameModel(const KnownModel& a, const KnownModel& b);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_KNOWN_MODEL_H_
