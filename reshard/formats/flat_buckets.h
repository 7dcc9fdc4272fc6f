// Optimizer state that a format stores as Megatron's flat buffers.
// Source: distributed-optimizer.md 1.2, 2.1 and 2.2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_FLAT_BUCKETS_H_
#define SHARDSHIFT_RESHARD_FORMATS_FLAT_BUCKETS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/foreign_files.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/layout/flat_buffer.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// Megatron's key of a state, and our role.
struct FlatState {
  const char* key;
  const char* role;
};
inline constexpr std::array<FlatState, 3> kFlatStates = {
    {{"param", "master"},
     {"exp_avg", "exp_avg"},
     {"exp_avg_sq", "exp_avg_sq"}}};

// A chunk's buffer of a model-parallel rank.
struct FlatPlace {
  bool is_first_stage = false;
  int64_t chunk = 0;
  bool experts = false;  // kept apart from the rest
};

// Of the parameters, in the order of registration.
FlatBuffer LayOutFlat(const MegatronArgs& args, const FlatPlace& place,
                      const std::vector<const ModuleParameter*>& parameters);

// Where a parameter begins, and how many elements there are, once the padding
// at the ends of the buckets is left out.
int64_t CompactBegin(const FlatBuffer& flat, int64_t parameter);
int64_t CompactElements(const FlatBuffer& flat);

// Which bucket a parameter of the buffer lies in.
int64_t BucketOf(const FlatBuffer& flat, int64_t parameter);

// Where a parameter begins if the padding at the ends of buckets is left out.
int64_t CompactBegin(const FlatBuffer& flat, int64_t parameter);

// Adds the pieces of a parameter that begins at element `begin` of a tensor of
// one dim, whose chunks ascend; what none of them has is not added. Errors: as
// ForeignFilesBuilder::Add.
absl::Status AddFlatParameter(const Parameter& parameter, int64_t begin,
                              const SourceTensor& flat, const std::string& role,
                              const std::vector<LogicalTensor>& tensors,
                              ckpt::ForeignFilesBuilder& builder);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_FLAT_BUCKETS_H_
