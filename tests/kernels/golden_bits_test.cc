// The bits of every kernel at one fixed input, as hashes written down once: two
// machines that pass have the same bits, whatever their instruction sets.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "kernels/rope_table.h"
#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kCols = 40;
constexpr int64_t kCount = kRows * kCols;

// FNV-1a over words instead of bytes.
uint64_t Hash(const std::vector<float>& values) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const uint32_t word : Bits(values)) hash = (hash ^ word) * 0x100000001B3;
  return hash;
}

std::vector<float> Gemm(const Kernels& k) {
  const std::vector<float> a = Normals("a", 19 * 400);
  const std::vector<float> b = Normals("b", 400 * 37);
  std::vector<float> c = Normals("c", 19 * 37);
  k.gemm({.m = 19,
          .n = 37,
          .k = 400,
          .a = {a.data(), 400, 1},
          .b = {b.data(), 37, 1},
          .c = c.data(),
          .ldc = 37,
          .leaves = 5,
          .parts = 2,
          .accumulate = true});
  return c;
}

std::vector<float> Norms(const Kernels& k) {
  const std::vector<float> x = Normals("x", kCount);
  const std::vector<float> w = Normals("w", kCols);
  std::vector<float> y(kCount), dx(kCount), mean(kRows), rstd(kRows);
  std::vector<float> dw(kCols), db(kCols), all;
  const NormForwardArgs forward = {x.data(), w.data(),    w.data(),
                                   kRows,    kCols,       1e-5F,
                                   y.data(), mean.data(), rstd.data()};
  const NormBackwardArgs backward = {y.data(),    x.data(),    w.data(),
                                     mean.data(), rstd.data(), kRows,
                                     kCols,       dx.data()};
  const NormWeightGradArgs grad = {y.data(), x.data(), mean.data(), rstd.data(),
                                   kRows,    kCols,    dw.data(),   db.data()};
  k.rms_norm_forward(forward);
  k.rms_norm_backward(backward);
  k.rms_norm_weight_grad(grad);
  for (const auto* part : {&y, &dx, &dw}) Append(*part, all);
  k.layer_norm_forward(forward);
  k.layer_norm_backward(backward);
  k.layer_norm_weight_grad(grad);
  for (const auto* part : {&y, &dx, &dw, &db, &mean, &rstd}) Append(*part, all);
  return all;
}

std::vector<float> Activations(const Kernels& k) {
  std::vector<float> x = Normals("x", 2 * kCount);
  for (float& value : x) value *= 5;
  const std::vector<float> dy = Normals("dy", 2 * kCount);
  std::vector<float> y(2 * kCount), dx(2 * kCount), all;
  k.gelu_forward({x.data(), 2 * kCount, y.data()});
  k.gelu_backward({dy.data(), x.data(), 2 * kCount, dx.data()});
  Append(y, all);
  Append(dx, all);
  k.swiglu_forward({x.data(), kRows, kCols, y.data()});
  k.swiglu_backward({dy.data(), x.data(), kRows, kCols, dx.data()});
  Append(y, all);
  Append(dx, all);
  return all;
}

std::vector<float> ExactGelu(const Kernels& k) {
  std::vector<float> x = Normals("x", 2 * kCount);
  for (float& value : x) value *= 5;
  const std::vector<float> dy = Normals("dy", 2 * kCount);
  std::vector<float> y(2 * kCount), dx(2 * kCount);
  k.exact_gelu_forward({x.data(), 2 * kCount, y.data()});
  k.exact_gelu_backward({dy.data(), x.data(), 2 * kCount, dx.data()});
  Append(dx, y);
  return y;
}

std::vector<float> Rotate(const Kernels& k, const RopeFrequencyArgs& args,
                          bool interleaved) {
  std::vector<float> cos(64 * 10), sin(64 * 10);
  BuildRopeTable(RopeFrequencies(args), 64, cos.data(), sin.data());
  std::vector<float> x = Normals("x", kCount);
  k.rope({.x = x.data(),
          .rows = kRows,
          .row_stride = kCols,
          .num_heads = 2,
          .head_stride = 20,
          .head_dim = 20,
          .first_position = 50,
          .cos = cos.data(),
          .sin = sin.data(),
          .interleaved = interleaved});
  Append(cos, x);
  Append(sin, x);
  return x;
}

std::vector<float> Rope(const Kernels& k) {
  return Rotate(k, {.head_dim = 20}, /*interleaved=*/false);
}

std::vector<float> OtherRopes(const Kernels& k) {
  std::vector<float> all =
      Rotate(k, {.head_dim = 20, .interpolation = 3.0}, /*interleaved=*/true);
  const RopeScaling scaling = {.original_max_positions = 64};
  Append(Rotate(k, {.head_dim = 20, .scaling = scaling}, false), all);
  return all;
}

std::vector<float> SoftmaxOver(const Kernels& k, int64_t window) {
  std::vector<float> p = Normals("scores", 45 * 45);
  std::vector<float> dp = Normals("dp", 45 * 45);
  k.causal_softmax_forward({p.data(), 45, 0.3F, window});
  k.causal_softmax_backward({p.data(), dp.data(), 45, 0.3F, window});
  Append(dp, p);
  return p;
}

std::vector<float> Softmax(const Kernels& k) { return SoftmaxOver(k, 0); }
std::vector<float> Window(const Kernels& k) { return SoftmaxOver(k, 19); }

std::vector<float> CrossEntropy(const Kernels& k) {
  std::vector<float> logits = Normals("logits", kCount);
  const std::vector<int32_t> targets = {0, 36, 7, 8, 20};
  const LogitsShard shard = {logits.data(), kRows, kCols, 0, 37};
  std::vector<float> max(kRows), sum(kRows), predicted(kRows), loss(kRows);
  k.row_max({shard, max.data()});
  k.exp_sum({shard, max.data(), 4, sum.data()});
  k.predicted_logit({shard, targets.data(), max.data(), predicted.data()});
  TokenLoss(sum.data(), predicted.data(), kRows, loss.data());
  k.cross_entropy_backward(
      {shard, targets.data(), max.data(), sum.data(), logits.data()});
  for (const auto* part : {&max, &sum, &loss}) Append(*part, logits);
  return logits;
}

std::vector<float> AdamW(const Kernels& k) {
  std::vector<float> p = Normals("p", kCount), m = Normals("m", kCount);
  std::vector<float> v(kCount, 0.01F);
  const std::vector<float> g = Normals("g", kCount);
  k.adamw({.param = p.data(),
           .exp_avg = m.data(),
           .exp_avg_sq = v.data(),
           .grad = g.data(),
           .count = kCount,
           .lr = 1e-3,
           .weight_decay = 0.1,
           .bias_correction1 = 0.19,
           .bias_correction2 = 0.002,
           .grad_scale = 0.7});
  Append(m, p);
  Append(v, p);
  return p;
}

struct Golden {
  const char* name;
  std::vector<float> (*outputs)(const Kernels&);
  uint64_t hash;
};

const Golden kGolden[] = {
    {"gemm", Gemm, 0x19869dd526259ef4},
    {"norms", Norms, 0x454b43f46e281bef},
    {"activations", Activations, 0xf613a4692b92c1bc},
    {"exact gelu", ExactGelu, 0x47ea21a7ab16cdfc},
    {"other ropes", OtherRopes, 0xcf166999418129ee},
    {"window", Window, 0xb2c5d86c76a4ad71},
    {"rope", Rope, 0x4161414111d68841},
    {"softmax", Softmax, 0x4056c59038762e62},
    {"cross entropy", CrossEntropy, 0xeec67f3d963b2b65},
    {"adamw", AdamW, 0xb6b666893907cbbc},
};

TEST(GoldenBits, AreTheSameOnEveryInstructionSet) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (!IsaSupported(isa)) continue;
    for (const Golden& golden : kGolden) {
      EXPECT_EQ(Hash(golden.outputs(KernelsFor(isa))), golden.hash)
          << golden.name << " on " << IsaName(isa);
    }
  }
}

TEST(GoldenBits, OfNormalNumbers) {
  EXPECT_EQ(Hash(Normals("golden", 1000)), 0xb3c0d24f5ac6fb27U);
}

}  // namespace
}  // namespace shardshift::kernels
