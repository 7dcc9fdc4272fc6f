// The router of a mixture of experts: which experts a token goes to and with
// what weights, and the weighed sum of what they give back.
//
// Choice: the k largest logits l of the token's E, the largest first, ties to
// the lower expert; slot j holds expert c(j).
// Weights: w(j) = e^l(c(j)) / sum over i of e^l(c(i)), over the chosen ones; or
// with `over_all`, p(c(j)) of the softmax p over all experts. Sums over slots,
// or experts, ascending, in double; rounded once.
// Sources: parallel-layout.md 6.2 and 6.3; Shazeer et al. 2017; the z-loss of
// Zoph et al. 2022; order: invariant-numerics.md 5.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ROUTER_H_
#define SHARDSHIFT_KERNELS_ROUTER_H_

#include <cstdint>

namespace shardshift::kernels {

// logits: [rows, experts]; chosen, weights: [rows, topk].
// REQUIRES: 1 <= topk <= experts.
struct RouteArgs {
  const float* logits = nullptr;
  int64_t rows = 0;
  int64_t experts = 0;
  int64_t topk = 0;
  bool over_all = false;
  int32_t* chosen = nullptr;
  float* weights = nullptr;
};
void Route(const RouteArgs& args);

// The gradient of the logits: of the weights, and of what balances the load,
//   sum over rows of ( z_loss (log sum e^l)^2 + sum over e of load(e) p(e) ),
// p being the softmax over all experts.
// dweights: [rows, topk]; load: [experts], the same for all rows, or null;
// dlogits: [rows, experts].
struct RouteBackwardArgs {
  const float* logits = nullptr;
  int64_t rows = 0;
  int64_t experts = 0;
  int64_t topk = 0;
  bool over_all = false;
  const int32_t* chosen = nullptr;
  const float* dweights = nullptr;
  double z_loss = 0;
  const double* load = nullptr;
  float* dlogits = nullptr;
};
void RouteBackward(const RouteBackwardArgs& args);

// y = (y + w(0) o(0)) + w(1) o(1) + .., a chain of fma for each element.
// outputs[row * topk + j]: [width]; weights: [rows, topk], or null: 1;
// y: [rows, width].
struct CombineArgs {
  const float* const* outputs = nullptr;
  const float* weights = nullptr;
  int64_t rows = 0;
  int64_t topk = 0;
  int64_t width = 0;
  float* y = nullptr;
};
void Combine(const CombineArgs& args);

// Its gradients: doutputs[row * topk + j] = w(j) dy, and dweights(j), the
// lane sum of o(j) dy.
struct CombineBackwardArgs {
  const float* dy = nullptr;
  const float* const* outputs = nullptr;
  const float* weights = nullptr;
  int64_t rows = 0;
  int64_t topk = 0;
  int64_t width = 0;
  float* const* doutputs = nullptr;
  float* dweights = nullptr;
};
void CombineBackward(const CombineBackwardArgs& args);

// y = sigmoid(gate) x for each row; x may be y. gate: [rows]; x, y:
// [rows, width].
struct GateArgs {
  const float* x = nullptr;
  const float* gate = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  float* y = nullptr;
};
void Gate(const GateArgs& args);

// dx = sigmoid(gate) dy; dgate: the lane sum of x dy, times sigmoid'(gate).
struct GateBackwardArgs {
  const float* dy = nullptr;
  const float* x = nullptr;
  const float* gate = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  float* dx = nullptr;
  float* dgate = nullptr;
};
void GateBackward(const GateBackwardArgs& args);

// One code for all instruction sets, as all of these are bound by memory.

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ROUTER_H_
