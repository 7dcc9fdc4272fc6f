// What the keys of a distributed checkpoint are to a model: applications put
// prefixes of their own before its names.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_KEYS_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_KEYS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/hf_family.h"

namespace shardshift::reshard {

// What ends the key of the state by which a parameter is known to have one.
inline constexpr absl::string_view kFirstMoment = ".exp_avg";

// Which keys are the model's, and which are the states of its optimizer: the
// embedding tells, whatever stands before its name.
struct DcpKeys {
  std::string model_prefix;  // of "model.embed_tokens.weight": "app.model."
  // "optim.state." of "optim.state.model.embed_tokens.weight.exp_avg"; empty if
  // no tensor has a state.
  std::string state_prefix;

  // What stands before the states, and before all else of the optimizer.
  absl::string_view OptimizerPrefix() const;
  bool IsModel(absl::string_view key) const;
};

// Errors: FailedPrecondition telling what was looked for, if there is no
// embedding, or more than one of it or of its states.
absl::StatusOr<DcpKeys> FindDcpKeys(const std::vector<absl::string_view>& keys,
                                    HfFamily family);

// Refuses keys of an optimizer of whose states none is the embedding's.
absl::Status CheckNoStates(const std::vector<absl::string_view>& keys);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_KEYS_H_
