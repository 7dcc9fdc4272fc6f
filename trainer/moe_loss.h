// What training adds to the loss for the routers of a mixture of experts. It
// enters through its gradients alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_MOE_LOSS_H_
#define SHARDSHIFT_TRAINER_MOE_LOSS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::trainer {

// With p(t, e) the softmax over all E experts of token t, n(e) the tokens that
// go to e, k of them for each token, S positions:
enum class LoadBalancing {
  // Megatron's, layer by layer, the mean over the samples of
  // E / (k S^2) sum over e of n(e) (sum over t of p(t, e)).
  kSeqAuxLoss,
  // transformers', over the N rows of all layers and of the whole batch,
  // E / N^2 sum over e of n(e) (sum over t of p(t, e)). n(e) has to be known
  // before the first backward, which takes one more forward pass.
  kLoadBalancingLoss,
};

// "seq_aux_loss", "load_balancing_loss".
absl::string_view Name(LoadBalancing kind);
// Errors: InvalidArgument for another name.
absl::StatusOr<LoadBalancing> ParseLoadBalancing(absl::string_view name);

struct MoeLoss {
  LoadBalancing load_balancing = LoadBalancing::kSeqAuxLoss;
  double aux_coeff = 0;  // its factor
  // Of the mean over the tokens of (log sum e^logits)^2, layer by layer.
  double z_coeff = 0;

  bool counts_whole_batch() const {
    return aux_coeff != 0 &&
           load_balancing == LoadBalancing::kLoadBalancingLoss;
  }
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_MOE_LOSS_H_
