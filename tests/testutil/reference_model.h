// A GPT in double and plain loops on whole logical tensors: what the model is,
// with nothing of how it is cut, stored or summed. The oracle of the trainer's
// losses and, by finite differences, of its gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TESTUTIL_REFERENCE_MODEL_H_
#define SHARDSHIFT_TESTS_TESTUTIL_REFERENCE_MODEL_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reshard/layout/model_config.h"

namespace shardshift {

class ReferenceModel {
 public:
  using Vector = std::vector<double>;
  // By position in reshard::LogicalTensors, row-major.
  using Tensors = std::vector<Vector>;

  // Factors of the losses of a mixture's routers (trainer/run_config.h).
  struct RouterLoss {
    double aux_coeff = 0;
    bool of_batch = false;  // transformers' load_balancing_loss
    double z_coeff = 0;
  };

  ReferenceModel(const reshard::ModelConfig& model, int64_t seq_length,
                 const RouterLoss& router_loss);

  struct Losses {
    double tokens = 0;   // mean over the tokens
    double routers = 0;  // what training adds to it
  };
  // tokens, labels: [samples, seq_length].
  Losses MeanLoss(const Tensors& tensors, std::span<const int32_t> tokens,
                  std::span<const int32_t> labels) const;

 private:
  // Activations of one sample are rows, one a position.
  using Rows = std::vector<Vector>;

  const Vector* Find(const Tensors& tensors, const std::string& name) const;
  Rows Embed(const Tensors& tensors, std::span<const int32_t> tokens) const;
  // Norms whole rows, or each head of them.
  Rows Normalize(const Tensors& tensors, const std::string& name, const Rows& x,
                 int64_t width) const;
  Rows Multiply(const Tensors& tensors, const std::string& name,
                const Rows& x) const;
  double Frequency(int64_t pair) const;
  void Rotate(Vector& heads, int64_t position) const;
  Rows Attend(const Rows& q, const Rows& k, const Rows& v) const;
  // `prefix`: "layers.3.mlp.".
  Rows Mlp(const Tensors& tensors, const std::string& prefix,
           const Rows& x) const;
  // Of the routers of all layers.
  struct RouterSums {
    double loss = 0;  // but for that of the batch
    Vector tokens;    // that go to each expert
    Vector shares;    // of each in the softmax over all, summed over tokens
  };
  Rows Mixture(const Tensors& tensors, const std::string& prefix, const Rows& x,
               RouterSums& sums) const;
  void AddRouter(const Rows& logits, const std::vector<int64_t>& tokens_of,
                 RouterSums& sums) const;
  // Of the batch, as a sum over its `count` tokens.
  double BatchLoss(const RouterSums& sums, double count) const;
  // The sum over the tokens. Adds to those of the routers.
  double SampleLoss(const Tensors& tensors, std::span<const int32_t> tokens,
                    std::span<const int32_t> labels, RouterSums& sums) const;

  reshard::ModelConfig model_;
  int64_t seq_length_;
  RouterLoss router_loss_;
  std::map<std::string, int64_t> index_;  // by name, into Tensors
};

}  // namespace shardshift

#endif  // SHARDSHIFT_TESTS_TESTUTIL_REFERENCE_MODEL_H_
