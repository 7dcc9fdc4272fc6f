// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include <algorithm>
#include <limits>

#include "kernels/lane_sum.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

void CausalSoftmaxForward(const CausalSoftmaxForwardArgs& args) {
  for (int64_t i = 0; i < args.size; ++i) {
    float* row = args.scores + i * args.size;
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j <= i; ++j) max = std::max(max, row[j] * args.scale);
    LaneSum sum;
    for (int64_t j = 0; j <= i; ++j) {
      row[j] = Exp(row[j] * args.scale - max);
      sum.Add(j, row[j]);
    }
    const float inverse = 1.0F / sum.Total();
    for (int64_t j = 0; j <= i; ++j) row[j] = row[j] * inverse;
    std::fill(row + i + 1, row + args.size, 0.0F);
  }
}

void CausalSoftmaxBackward(const CausalSoftmaxBackwardArgs& args) {
  for (int64_t i = 0; i < args.size; ++i) {
    const float* p = args.p + i * args.size;
    float* row = args.dp + i * args.size;
    LaneSum dots;
    for (int64_t j = 0; j <= i; ++j) dots.AddProduct(j, row[j], p[j]);
    const float dot = dots.Total();
    for (int64_t j = 0; j <= i; ++j) {
      row[j] = args.scale * (p[j] * (row[j] - dot));
    }
    std::fill(row + i + 1, row + args.size, 0.0F);
  }
}

}  // namespace

void InstallSoftmax(Kernels& table) {
  table.causal_softmax_forward = CausalSoftmaxForward;
  table.causal_softmax_backward = CausalSoftmaxBackward;
}

}  // namespace shardshift::kernels::ref
