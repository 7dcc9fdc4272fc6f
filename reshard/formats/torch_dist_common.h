// The common state of a Megatron `torch_dist` checkpoint that is to be written:
// the file common.pt, which has no parameters.
// Source: checkpoint-formats.md 3.4, distributed-optimizer.md 2.3 and 2.6;
// megatron/core/optimizer/{optimizer,distrib_optimizer}.py at core_v0.16.1.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_COMMON_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_COMMON_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/formats/megatron_target.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

// Whether experts have an optimizer of their own. Unlike newer versions, this
// one looks at EP alone (Layout::separates_experts).
bool ChainsOptimizers(const Layout& layout);

// Errors: as MegatronTarget::Common and GroupOf.
absl::StatusOr<std::string> TorchDistCommon(const MegatronTarget& target);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_COMMON_H_
