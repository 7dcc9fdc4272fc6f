// Every backward kernel against central differences of its forward formula,
// evaluated in double by plain loops.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "kernels/rope_table.h"
#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

using Doubles = std::vector<double>;
using Function = std::function<Doubles(const Doubles&)>;

Doubles ToDoubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// `gradient` is d(sum_i dy[i] f(x)[i]) / dx.
void ExpectGradient(const Function& f, const std::vector<float>& x,
                    const std::vector<float>& dy,
                    const std::vector<float>& gradient) {
  const auto loss = [&](const Doubles& at) {
    const Doubles y = f(at);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    Doubles up = ToDoubles(x);
    Doubles down = up;
    up[i] += kStep;
    down[i] -= kStep;
    const double slope = (loss(up) - loss(down)) / (2 * kStep);
    EXPECT_NEAR(gradient[i], slope, 1e-5 * (1 + std::fabs(slope))) << i;
  }
}

const Kernels& Best() { return KernelsFor(DetectIsa()); }

TEST(Gradient, Gelu) {
  const std::vector<float> x = Normals("x", 40);
  const std::vector<float> dy = Normals("dy", 40);
  std::vector<float> dx(40);
  Best().gelu_backward({dy.data(), x.data(), 40, dx.data()});
  const auto gelu = [](const Doubles& at) {
    Doubles y;
    for (const double v : at) {
      const double u =
          std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
      y.push_back(0.5 * v * (1 + std::tanh(u)));
    }
    return y;
  };
  ExpectGradient(gelu, x, dy, dx);
}

TEST(Gradient, ExactGelu) {
  const std::vector<float> x = Normals("x", 40);
  const std::vector<float> dy = Normals("dy", 40);
  std::vector<float> dx(40);
  Best().exact_gelu_backward({dy.data(), x.data(), 40, dx.data()});
  const auto gelu = [](const Doubles& at) {
    Doubles y;
    for (const double v : at) {
      y.push_back(0.5 * v * (1 + std::erf(v / std::numbers::sqrt2)));
    }
    return y;
  };
  ExpectGradient(gelu, x, dy, dx);
}

TEST(Gradient, Swiglu) {
  constexpr int64_t kWidth = 9;
  const std::vector<float> x = Normals("x", 4 * kWidth);
  const std::vector<float> dy = Normals("dy", 2 * kWidth);
  std::vector<float> dx(4 * kWidth);
  Best().swiglu_backward({dy.data(), x.data(), 2, kWidth, dx.data()});
  const auto swiglu = [](const Doubles& at) {
    Doubles y;
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t c = 0; c < kWidth; ++c) {
        const double gate = at[r * 2 * kWidth + c];
        y.push_back(gate / (1 + std::exp(-gate)) *
                    at[r * 2 * kWidth + kWidth + c]);
      }
    }
    return y;
  };
  ExpectGradient(swiglu, x, dy, dx);
}

constexpr int64_t kRows = 2;
constexpr int64_t kHidden = 19;

// y = (x - mean) rstd w + b, with mean = 0 and no b for RMSNorm.
Doubles NormFormula(bool rms, const Doubles& x, const Doubles& w,
                    const Doubles& b) {
  Doubles y(x.size());
  for (int64_t r = 0; r < kRows; ++r) {
    const double* row = &x[r * kHidden];
    double mean = 0;
    double squares = 0;
    for (int64_t c = 0; c < kHidden && !rms; ++c) mean += row[c] / kHidden;
    for (int64_t c = 0; c < kHidden; ++c) {
      squares += (row[c] - mean) * (row[c] - mean);
    }
    const double rstd = 1 / std::sqrt(squares / kHidden + 1e-5);
    for (int64_t c = 0; c < kHidden; ++c) {
      y[r * kHidden + c] = (row[c] - mean) * rstd * w[c] + (rms ? 0 : b[c]);
    }
  }
  return y;
}

void CheckNorm(bool rms) {
  const std::vector<float> x = Normals("x", kRows * kHidden);
  const std::vector<float> dy = Normals("dy", kRows * kHidden);
  const std::vector<float> w = Normals("w", kHidden);
  const std::vector<float> b = Normals("b", kHidden);
  std::vector<float> y(x.size()), dx(x.size()), mean(kRows), rstd(kRows);
  std::vector<float> dw(kHidden), db(kHidden);
  const Kernels& k = Best();
  (rms ? k.rms_norm_forward
       : k.layer_norm_forward)({x.data(), w.data(), b.data(), kRows, kHidden,
                                1e-5F, y.data(), mean.data(), rstd.data()});
  (rms ? k.rms_norm_backward
       : k.layer_norm_backward)({dy.data(), x.data(), w.data(), mean.data(),
                                 rstd.data(), kRows, kHidden, dx.data()});
  (rms ? k.rms_norm_weight_grad : k.layer_norm_weight_grad)(
      {dy.data(), x.data(), mean.data(), rstd.data(), kRows, kHidden, dw.data(),
       db.data()});
  const Doubles x_d = ToDoubles(x), w_d = ToDoubles(w), b_d = ToDoubles(b);
  ExpectGradient(
      [&](const Doubles& at) { return NormFormula(rms, at, w_d, b_d); }, x, dy,
      dx);
  ExpectGradient(
      [&](const Doubles& at) { return NormFormula(rms, x_d, at, b_d); }, w, dy,
      dw);
  if (rms) return;
  ExpectGradient(
      [&](const Doubles& at) { return NormFormula(rms, x_d, w_d, at); }, b, dy,
      db);
}

TEST(Gradient, RmsNorm) { CheckNorm(true); }
TEST(Gradient, LayerNorm) { CheckNorm(false); }

void CheckSoftmax(int64_t window) {
  constexpr int64_t kSize = 7;
  const std::vector<float> scores = Normals("scores", kSize * kSize);
  const std::vector<float> dy = Normals("dy", kSize * kSize);
  std::vector<float> p = scores;
  std::vector<float> dscores = dy;
  Best().causal_softmax_forward({p.data(), kSize, 0.6F, window});
  Best().causal_softmax_backward(
      {p.data(), dscores.data(), kSize, 0.6F, window});
  const auto softmax = [window](const Doubles& at) {
    Doubles y(at.size());
    for (int64_t i = 0; i < kSize; ++i) {
      const int64_t first =
          window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
      double sum = 0;
      for (int64_t j = first; j <= i; ++j) {
        y[i * kSize + j] = std::exp(0.6F * at[i * kSize + j]);
        sum += y[i * kSize + j];
      }
      for (int64_t j = first; j <= i; ++j) y[i * kSize + j] /= sum;
    }
    return y;
  };
  ExpectGradient(softmax, scores, dy, dscores);
}

TEST(Gradient, CausalSoftmax) { CheckSoftmax(0); }
TEST(Gradient, CausalSoftmaxWithAWindow) { CheckSoftmax(3); }

TEST(Gradient, Rope) {
  constexpr int64_t kDim = 6;
  std::vector<float> cos(8 * kDim / 2), sin(8 * kDim / 2);
  BuildRopeTable(RopeFrequencies({.base = 100.0, .head_dim = kDim}), 8,
                 cos.data(), sin.data());
  const std::vector<float> x = Normals("x", kDim);
  const std::vector<float> dy = Normals("dy", kDim);
  std::vector<float> dx = dy;
  Best().rope({.x = dx.data(),
               .rows = 1,
               .row_stride = kDim,
               .num_heads = 1,
               .head_stride = kDim,
               .head_dim = kDim,
               .first_position = 5,
               .cos = cos.data(),
               .sin = sin.data(),
               .inverse = true});
  const auto rope = [](const Doubles& at) {
    Doubles y(kDim);
    for (int64_t j = 0; j < kDim / 2; ++j) {
      const double angle =
          5 * std::pow(100.0, -2.0 * static_cast<double>(j) / kDim);
      const double x0 = at[j];
      const double x1 = at[j + kDim / 2];
      y[j] = x0 * std::cos(angle) - x1 * std::sin(angle);
      y[j + kDim / 2] = x1 * std::cos(angle) + x0 * std::sin(angle);
    }
    return y;
  };
  ExpectGradient(rope, x, dy, dx);
}

TEST(Gradient, CrossEntropy) {
  constexpr int64_t kCols = 24;
  constexpr int64_t kVocab = 21;
  const std::vector<float> logits = Normals("logits", 2 * kCols);
  const std::vector<int32_t> targets = {3, 20};
  const LogitsShard shard = {logits.data(), 2, kCols, 0, kVocab};
  std::vector<float> max(2), sum(2), dlogits(2 * kCols);
  Best().row_max({shard, max.data()});
  Best().exp_sum({shard, max.data(), 4, sum.data()});
  Best().cross_entropy_backward(
      {shard, targets.data(), max.data(), sum.data(), dlogits.data()});
  const auto losses = [&](const Doubles& at) {
    Doubles y;
    for (int64_t r = 0; r < 2; ++r) {
      double z = 0;
      for (int64_t c = 0; c < kVocab; ++c) z += std::exp(at[r * kCols + c]);
      y.push_back(std::log(z) - at[r * kCols + targets[r]]);
    }
    return y;
  };
  ExpectGradient(losses, logits, {1, 1}, dlogits);
}

}  // namespace
}  // namespace shardshift::kernels
