// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include <algorithm>
#include <limits>

#include "kernels/lane_sum.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

// The first key that query `i` sees.
int64_t FirstKey(int64_t i, int64_t window) {
  return window > 0 && i >= window ? i - window + 1 : 0;
}

void CausalSoftmaxForward(const CausalSoftmaxForwardArgs& args) {
  for (int64_t i = 0; i < args.size; ++i) {
    float* row = args.scores + i * args.size;
    const int64_t first = FirstKey(i, args.window);
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t j = first; j <= i; ++j) {
      max = std::max(max, row[j] * args.scale);
    }
    LaneSum sum;
    for (int64_t j = first; j <= i; ++j) {
      row[j] = Exp(row[j] * args.scale - max);
      sum.Add(j, row[j]);
    }
    const float inverse = 1.0F / sum.Total();
    for (int64_t j = first; j <= i; ++j) row[j] = row[j] * inverse;
    std::fill(row, row + first, 0.0F);
    std::fill(row + i + 1, row + args.size, 0.0F);
  }
}

void CausalSoftmaxBackward(const CausalSoftmaxBackwardArgs& args) {
  for (int64_t i = 0; i < args.size; ++i) {
    const float* p = args.p + i * args.size;
    float* row = args.dp + i * args.size;
    const int64_t first = FirstKey(i, args.window);
    LaneSum dots;
    for (int64_t j = first; j <= i; ++j) dots.AddProduct(j, row[j], p[j]);
    const float dot = dots.Total();
    for (int64_t j = first; j <= i; ++j) {
      row[j] = args.scale * (p[j] * (row[j] - dot));
    }
    std::fill(row, row + first, 0.0F);
    std::fill(row + i + 1, row + args.size, 0.0F);
  }
}

}  // namespace

void InstallSoftmax(Kernels& table) {
  table.causal_softmax_forward = CausalSoftmaxForward;
  table.causal_softmax_backward = CausalSoftmaxBackward;
}

}  // namespace shardshift::kernels::ref
