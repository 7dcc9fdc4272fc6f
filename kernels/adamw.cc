// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

namespace shardshift::kernels {

AdamWScalars RoundAdamWScalars(const AdamWArgs& args) {
  return {
      .beta1 = static_cast<float>(args.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
      .beta2 = static_cast<float>(args.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
      .inverse_correction1 = static_cast<float>(1.0 / args.bias_correction1),
      .inverse_correction2 = static_cast<float>(1.0 / args.bias_correction2),
      .minus_lr = static_cast<float>(-args.lr),
      .eps = static_cast<float>(args.eps),
      .weight_decay = static_cast<float>(args.weight_decay),
      .grad_scale = static_cast<float>(args.grad_scale),
  };
}

}  // namespace shardshift::kernels
