// Which tensors of a source a Megatron checkpoint needs, and what each replica
// of one is called, so that all of them are written and proved.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_EXPORTS_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_EXPORTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/dtype.h"
#include "ckpt/reader.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/export.h"
#include "reshard/formats/megatron_target.h"
#include "reshard/formats/plan_export.h"
#include "reshard/formats/storage_pieces.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// A source that is to become a Megatron checkpoint.
struct MegatronSource {
  MegatronTarget target;
  std::vector<LogicalTensor> tensors;
  Content stored = Content::kTraining;  // of which the target may have less
};

// Errors: InvalidArgument for --select; as ReadState, CheckStored,
// CheckNothingElse and PlanMegatronTarget.
absl::StatusOr<MegatronSource> ReadMegatronSource(const ckpt::Reader& source,
                                                  Format format,
                                                  const ExportChoice& choice);

class MegatronExports {
 public:
  MegatronExports(const ckpt::Reader& source, const MegatronSource& megatron)
      : source_(source), megatron_(megatron) {}

  // The pieces of a parameter under `role`: weight, master, exp_avg or
  // exp_avg_sq. Replicas of one number are a whole tensor together.
  // Errors: NotFound for what the source lacks.
  absl::StatusOr<std::vector<StoragePiece>> Pieces(const Parameter& parameter,
                                                   absl::string_view role,
                                                   int64_t replica);

  ckpt::DType DTypeOf(absl::string_view role) const;

  // All that were asked for, tensor by tensor.
  std::vector<ExportedTensor> Take() &&;

 private:
  const ckpt::Reader& source_;
  const MegatronSource& megatron_;
  // By tensor and role of the copy.
  std::map<std::pair<int64_t, std::string>, ExportedTensor> exported_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_EXPORTS_H_
