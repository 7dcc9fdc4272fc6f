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

  ReferenceModel(const reshard::ModelConfig& model, int64_t seq_length);

  // The mean loss over the tokens; tokens, labels: [samples, seq_length].
  double MeanLoss(const Tensors& tensors, std::span<const int32_t> tokens,
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
  Rows Mlp(const Tensors& tensors, const std::string& layer,
           const Rows& x) const;
  double SampleLoss(const Tensors& tensors, std::span<const int32_t> tokens,
                    std::span<const int32_t> labels) const;

  reshard::ModelConfig model_;
  int64_t seq_length_;
  std::map<std::string, int64_t> index_;  // by name, into Tensors
};

}  // namespace shardshift

#endif  // SHARDSHIFT_TESTS_TESTUTIL_REFERENCE_MODEL_H_
