// SPDX-License-Identifier: Apache-2.0
#include "trainer/moe_loss.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace shardshift::trainer {

absl::string_view Name(LoadBalancing kind) {
  return kind == LoadBalancing::kSeqAuxLoss ? "seq_aux_loss"
                                            : "load_balancing_loss";
}

absl::StatusOr<LoadBalancing> ParseLoadBalancing(absl::string_view name) {
  for (const auto kind :
       {LoadBalancing::kSeqAuxLoss, LoadBalancing::kLoadBalancingLoss}) {
    if (name == Name(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", name, "\" is not seq_aux_loss or load_balancing_loss"));
}

}  // namespace shardshift::trainer
