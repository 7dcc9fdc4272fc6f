// Memory to memory: the state of ranks on one layout becomes that of ranks on
// another, without files.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_MEMORY_TO_MEMORY_H_
#define SHARDSHIFT_RESHARD_EXEC_MEMORY_TO_MEMORY_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "reshard/exec/transport.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// Where a piece of RankState::buffers[buffer] lies, dense, under a role.
using SourceMemory = absl::FunctionRef<const float*(
    int64_t buffer, const Piece& piece, int64_t role)>;
using TargetMemory =
    absl::FunctionRef<float*(int64_t buffer, const Piece& piece, int64_t role)>;

struct MemoryToMemoryOptions {
  // What this rank sends in a round, and as much again for what it receives.
  int64_t round_bytes = int64_t{32} << 20;
  // First compare what several ranks hold, and refuse if it differs.
  bool compare_replicas = false;
};

// Fills every piece that this rank owns on layout `to`, under every role, from
// the ranks' memory on layout `from`. Collective over the transport, with equal
// arguments. Its first ranks are those of `from`, and those of `to`; the two
// may differ in number, and a rank beyond one of them is asked for no memory of
// that side. Source and target memory are apart.
// Errors: InvalidArgument for a layout the model cannot have, more ranks than
// the transport has, or round_bytes without room for an element; DataLoss,
// before any target memory is written, if replicas differ: names tensor, role,
// ranks and the place of the largest difference; as Transport.
absl::Status MemoryToMemory(const ModelConfig& model, const Layout& from,
                            const Layout& to, Transport& transport,
                            SourceMemory source, TargetMemory target,
                            const MemoryToMemoryOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_MEMORY_TO_MEMORY_H_
