// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

void AddBias(const AddBiasArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    float* x = args.x + r * args.ldx;
    for (int64_t c = 0; c < args.cols; ++c) x[c] = x[c] + args.bias[c];
  }
}

void ColumnSum(const ColumnSumArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* dy = args.dy + r * args.ld_dy;
    for (int64_t c = 0; c < args.cols; ++c) args.acc[c] = args.acc[c] + dy[c];
  }
}

void Add(const AddArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) args.out[i] = args.a[i] + args.b[i];
}

void Scale(const ScaleArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) args.x[i] = args.x[i] * args.factor;
}

}  // namespace

void InstallElementwise(Kernels& table) {
  table.add_bias = AddBias;
  table.column_sum = ColumnSum;
  table.add = Add;
  table.scale = Scale;
}

}  // namespace shardshift::kernels::ref
