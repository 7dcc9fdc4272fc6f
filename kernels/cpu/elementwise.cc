// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"

namespace shardshift::kernels::SS_ISA {
namespace {

void AddBias(const AddBiasArgs& args) {
  ParallelForRows(args.rows, args.cols, 3, [&](int64_t r) {
    float* x = args.x + r * args.ldx;
    ForLanes(args.cols, [&](int64_t c, int64_t count) {
      Store(Load(x + c, count) + Load(args.bias + c, count), x + c, count);
    });
  });
}

void ColumnSum(const ColumnSumArgs& args) {
  ParallelForLanes(args.cols, 3 * args.rows, [&](int64_t c, int64_t count) {
    F16 acc = Load(args.acc + c, count);
    for (int64_t r = 0; r < args.rows; ++r) {
      acc = acc + Load(args.dy + r * args.ld_dy + c, count);
    }
    Store(acc, args.acc + c, count);
  });
}

void Add(const AddArgs& args) {
  ParallelForLanes(args.count, 5, [&](int64_t i, int64_t count) {
    Store(Load(args.a + i, count) + Load(args.b + i, count), args.out + i,
          count);
  });
}

void Scale(const ScaleArgs& args) {
  const F16 factor = Broadcast(args.factor);
  ParallelForLanes(args.count, 5, [&](int64_t i, int64_t count) {
    Store(Load(args.x + i, count) * factor, args.x + i, count);
  });
}

}  // namespace

void InstallElementwise(Kernels& table) {
  table.add_bias = AddBias;
  table.column_sum = ColumnSum;
  table.add = Add;
  table.scale = Scale;
}

}  // namespace shardshift::kernels::SS_ISA
