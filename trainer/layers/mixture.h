// A mixture of experts in place of a feed-forward block: a router sends each
// token to k experts and adds what they give back, weighed; a shared expert,
// if there is one, sees all tokens.
//   y = [[sigmoid(g x)] shared(x)] + sum over slots j of w(j) expert(c(j))(x)
// Each rank routes the rows that it has. No token is dropped.
// Sources: Megatron's moe_layer.py, router.py; parallel-layout.md 6; order of
// sums: invariant-numerics.md 5.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_MIXTURE_H_
#define SHARDSHIFT_TRAINER_LAYERS_MIXTURE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/buffer.h"
#include "trainer/layers/context.h"
#include "trainer/layers/experts.h"
#include "trainer/layers/mlp.h"
#include "trainer/layers/replicated_linear.h"
#include "trainer/layers/token_dispatch.h"

namespace shardshift::trainer {

class Mixture {
 public:
  // Kept from forward to backward; E experts, k of them a token.
  struct Cache {
    Buffer logits;                // [r, E]
    std::vector<int32_t> chosen;  // [r, k]
    Buffer weights;               // [r, k]
    std::optional<TokenDispatch> dispatch;
    Experts::Cache experts;
    Buffer outputs;  // [r k, H], of the experts, in the order at home
    Mlp::Cache shared;
    Buffer shared_output;  // [r, H], before the gate
    Buffer gate;           // [r], before the sigmoid
  };

  // `prefix` is that of its parameters, "layers.3.mlp.".
  Mixture(LayerContext& context, const std::string& prefix);

  // x, y: [r, H]. Two all-to-alls, and what the experts' ranks sum; a shared
  // expert as an Mlp.
  absl::Status Forward(const float* x, const MicroBatch& batch, float* y,
                       Cache& cache);

  // dx: [r, H]. As Forward.
  absl::Status Backward(const float* x, const float* dy, const Cache& cache,
                        const MicroBatch& batch, float* dx);

 private:
  absl::Status Route(const float* x, const MicroBatch& batch, Cache& cache);
  absl::Status ForwardShared(const float* x, const MicroBatch& batch, float* y,
                             Cache& cache);
  // d_outputs as Cache::outputs. Adds to dx.
  absl::Status BackwardExperts(const float* d_outputs, const Cache& cache,
                               const MicroBatch& batch, float* dx);
  // How the auxiliary loss grows with each expert's shares of a sample's
  // tokens; empty without that loss.
  std::vector<double> LoadGradient(const TokenDispatch& dispatch,
                                   int64_t sample) const;
  // dweights: [r, k].
  void BackwardRouter(const float* x, const float* dweights, const Cache& cache,
                      const MicroBatch& batch, float* dx);
  // Adds to dx.
  absl::Status BackwardShared(const float* x, const float* dy,
                              const Cache& cache, const MicroBatch& batch,
                              float* dx);
  int64_t Rows(const MicroBatch& batch) const;
  void Accumulate(const float* a, int64_t count, float* sum) const;

  LayerContext& context_;
  ReplicatedLinear router_;
  Experts experts_;
  std::optional<Mlp> shared_;
  std::optional<ReplicatedLinear> shared_gate_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_MIXTURE_H_
