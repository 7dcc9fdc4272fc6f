// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

constexpr float kEps = 1e-5F;

struct Norm {
  int64_t rows, hidden;
  std::vector<float> x, dy, w, b, y, dx, mean, rstd, dw, db;
};

Norm MakeNorm(int64_t rows, int64_t hidden) {
  const int64_t count = rows * hidden;
  return {rows,
          hidden,
          Normals("x", count),
          Normals("dy", count),
          Normals("w", hidden),
          Normals("b", hidden),
          std::vector<float>(count),
          std::vector<float>(count),
          std::vector<float>(rows),
          std::vector<float>(rows),
          Normals("dw", hidden),
          Normals("db", hidden)};
}

void RunAll(const Kernels& k, bool rms, Norm& n) {
  const NormForwardArgs forward = {n.x.data(), n.w.data(),    n.b.data(),
                                   n.rows,     n.hidden,      kEps,
                                   n.y.data(), n.mean.data(), n.rstd.data()};
  (rms ? k.rms_norm_forward : k.layer_norm_forward)(forward);
  const NormBackwardArgs backward = {n.dy.data(),   n.x.data(),    n.w.data(),
                                     n.mean.data(), n.rstd.data(), n.rows,
                                     n.hidden,      n.dx.data()};
  (rms ? k.rms_norm_backward : k.layer_norm_backward)(backward);
  const NormWeightGradArgs grad = {n.dy.data(),   n.x.data(), n.mean.data(),
                                   n.rstd.data(), n.rows,     n.hidden,
                                   n.dw.data(),   n.db.data()};
  (rms ? k.rms_norm_weight_grad : k.layer_norm_weight_grad)(grad);
}

TEST(Norm, HasTheSameBitsOnAllIsas) {
  for (const bool rms : {true, false}) {
    for (const int64_t hidden : kEdgeSizes) {
      SCOPED_TRACE(testing::Message() << (rms ? "rms " : "layer ") << hidden);
      ExpectSameBitsOnAllIsas([rms, hidden](const Kernels& kernels) {
        Norm n = MakeNorm(3, hidden);
        RunAll(kernels, rms, n);
        std::vector<float> all = n.y;
        for (const auto* part : {&n.dx, &n.mean, &n.rstd, &n.dw, &n.db}) {
          Append(*part, all);
        }
        return all;
      });
    }
  }
}

TEST(RmsNorm, MatchesItsDefinitionInDouble) {
  Norm n = MakeNorm(2, 37);
  RunAll(KernelsFor(DetectIsa()), true, n);
  for (int64_t r = 0; r < 2; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < 37; ++c) squares += std::pow(n.x[r * 37 + c], 2.0);
    const double rstd = 1 / std::sqrt(squares / 37 + kEps);
    for (int64_t c = 0; c < 37; ++c) {
      EXPECT_NEAR(n.y[r * 37 + c], n.x[r * 37 + c] * rstd * n.w[c], 2e-6);
    }
  }
}

TEST(LayerNorm, MatchesItsDefinitionInDouble) {
  Norm n = MakeNorm(2, 37);
  RunAll(KernelsFor(DetectIsa()), false, n);
  for (int64_t r = 0; r < 2; ++r) {
    double mean = 0;
    double squares = 0;
    for (int64_t c = 0; c < 37; ++c) mean += n.x[r * 37 + c] / 37.0;
    for (int64_t c = 0; c < 37; ++c) {
      squares += std::pow(n.x[r * 37 + c] - mean, 2.0);
    }
    const double rstd = 1 / std::sqrt(squares / 37 + kEps);
    for (int64_t c = 0; c < 37; ++c) {
      EXPECT_NEAR(n.y[r * 37 + c],
                  (n.x[r * 37 + c] - mean) * rstd * n.w[c] + n.b[c], 4e-6);
    }
  }
}

TEST(Norm, RowsDoNotDependOnEachOther) {
  for (const bool rms : {true, false}) {
    Norm all = MakeNorm(3, 33);
    Norm one = MakeNorm(1, 33);
    std::copy_n(&all.x[66], 33, one.x.begin());
    std::copy_n(&all.dy[66], 33, one.dy.begin());
    RunAll(KernelsFor(DetectIsa()), rms, all);
    RunAll(KernelsFor(DetectIsa()), rms, one);
    EXPECT_EQ(Bits({all.y.begin() + 66, all.y.end()}), Bits(one.y));
    EXPECT_EQ(Bits({all.dx.begin() + 66, all.dx.end()}), Bits(one.dx));
  }
}

TEST(NormWeightGrad, GoesOnFromTheAccumulator) {
  for (const bool rms : {true, false}) {
    const Kernels& k = KernelsFor(DetectIsa());
    const auto grad = rms ? k.rms_norm_weight_grad : k.layer_norm_weight_grad;
    Norm n = MakeNorm(5, 20);
    RunAll(k, rms, n);
    std::vector<float> dw = Normals("dw", 20);
    std::vector<float> db = Normals("db", 20);
    for (const int64_t begin : {0, 2}) {
      grad({&n.dy[begin * 20], &n.x[begin * 20], &n.mean[begin], &n.rstd[begin],
            begin == 0 ? 2 : 3, 20, dw.data(), db.data()});
    }
    EXPECT_EQ(Bits(dw), Bits(n.dw));
    EXPECT_EQ(Bits(db), Bits(n.db));
  }
}

}  // namespace
}  // namespace shardshift::kernels
