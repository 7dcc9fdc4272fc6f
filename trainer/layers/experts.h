// The experts of a rank: feed-forward blocks without biases, each cut over the
// expert-tensor ranks, on the tokens that a TokenDispatch brought.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_EXPERTS_H_
#define SHARDSHIFT_TRAINER_LAYERS_EXPERTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/buffer.h"
#include "trainer/layers/activation.h"
#include "trainer/layers/context.h"
#include "trainer/layers/token_dispatch.h"

namespace shardshift::trainer {

class Experts {
 public:
  // Kept from forward to backward; N rows at the experts.
  struct Cache {
    Buffer x;          // [N, H]
    Buffer fc1;        // [N, fc1 out of this rank]
    Buffer activated;  // [N, F / expert tensor ranks]
  };

  // `prefix` is that of their parameters, "layers.3.mlp.experts.".
  Experts(LayerContext& context, const std::string& prefix);

  // cache.x is set. y: [N, H], what the rank's leaves add.
  void Forward(const TokenDispatch& dispatch, Cache& cache, float* y) const;

  // dy: [N, H], whole; adds the gradients of the weights; dx: [N, H], what the
  // rank's leaves add.
  void Backward(const TokenDispatch& dispatch, const float* dy,
                const Cache& cache, const MicroBatch& batch, float* dx);

 private:
  struct Expert {
    int64_t fc1 = 0;  // parameters
    int64_t fc2 = 0;
  };

  int64_t leaves() const;
  // x: [N, in]; dy: [N, out].
  void AddGradients(const TokenDispatch& dispatch, int64_t local_expert,
                    int64_t parameter, const float* x, int64_t in,
                    const float* dy, int64_t out, const MicroBatch& batch);

  LayerContext& context_;
  Activation activation_;
  int64_t width_;  // F / expert tensor ranks
  std::vector<Expert> experts_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_EXPERTS_H_
