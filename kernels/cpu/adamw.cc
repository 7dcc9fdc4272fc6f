// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"

namespace shardshift::kernels::SS_ISA {
namespace {

void AdamW(const AdamWArgs& args) {
  const AdamWScalars s = RoundAdamWScalars(args);
  ParallelForLanes(args.count, 15, [&](int64_t i, int64_t count) {
    const F16 g = Load(args.grad + i, count) * Broadcast(s.grad_scale);
    const F16 m = Fma(Broadcast(s.beta1), Load(args.exp_avg + i, count),
                      Broadcast(s.one_minus_beta1) * g);
    const F16 v = Fma(Broadcast(s.beta2), Load(args.exp_avg_sq + i, count),
                      (Broadcast(s.one_minus_beta2) * g) * g);
    const F16 root = Sqrt(v * Broadcast(s.inverse_correction2));
    const F16 update =
        (m * Broadcast(s.inverse_correction1)) / (root + Broadcast(s.eps));
    const F16 p = Load(args.param + i, count);
    const F16 direction = Fma(Broadcast(s.weight_decay), p, update);
    Store(m, args.exp_avg + i, count);
    Store(v, args.exp_avg_sq + i, count);
    Store(Fma(Broadcast(s.minus_lr), direction, p), args.param + i, count);
  });
}

}  // namespace

void InstallAdamW(Kernels& table) { table.adamw = AdamW; }

}  // namespace shardshift::kernels::SS_ISA
