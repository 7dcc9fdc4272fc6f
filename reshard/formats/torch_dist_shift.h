// Optimizer state of a `torch_dist` checkpoint that is shifted
// (shifted_buffer.h): it is found out, and put back on request.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_SHIFT_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_SHIFT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reshard/formats/foreign_checkpoint.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/torch_dist_tensors.h"
#include "reshard/layout/model_map.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// What such a state is read from. Nothing is owned.
struct ShiftSource {
  const MegatronArgs& args;
  const ModelMap& map;
  const std::vector<LogicalTensor>& tensors;
  const TorchDistModel& stored;
  const TensorsByKey& by_key;
};

// The key of a stored tensor's optimizer state under a role; of kinds other
// than fully_reshardable the masters have another.
std::string FullyReshardableKey(const std::string& role,
                                const std::string& name);

// Compares some of the masters that `read` has with its weights, of which they
// are to be the unrounded values. They are shifted if a repair makes more of
// them so; weights that are others for another reason are left to be kept
// (weights_check.h). If they are shifted, and `repair`, `read` becomes the
// checkpoint as it should be. Elements that are in no file are filled in:
// masters from the weights, moments with zeros; `lost`, `notes` and `left_out`
// tell of them. A repair of what is not shifted is noted, too.
// Errors: DataLoss naming the first tensor that differs from its weights, if it
// is shifted, or not repaired; ResourceExhausted if too much would have to be
// filled in.
absl::Status CheckShift(const ShiftSource& source, bool repair,
                        ForeignCheckpoint& read);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_SHIFT_H_
