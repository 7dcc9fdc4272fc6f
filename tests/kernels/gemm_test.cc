// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

enum class Layout { kNN, kNT, kTN, kTT };

struct Problem {
  int64_t m, n, k;
  int64_t leaves = 1;
  int64_t parts = 1;
  Layout layout = Layout::kNN;
  bool accumulate = false;
};

StridedMatrix View(const std::vector<float>& data, int64_t rows, int64_t cols,
                   bool transposed) {
  if (transposed) return {data.data(), 1, rows};
  return {data.data(), cols, 1};
}

struct Operands {
  std::vector<float> a, b, c;
  GemmArgs args;
};

Operands MakeOperands(const Problem& p) {
  Operands op = {Normals("a", p.m * p.k),
                 Normals("b", p.k * p.n),
                 Normals("c", p.m * p.n),
                 {}};
  const bool a_t = p.layout == Layout::kTN || p.layout == Layout::kTT;
  const bool b_t = p.layout == Layout::kNT || p.layout == Layout::kTT;
  op.args = {.m = p.m,
             .n = p.n,
             .k = p.k,
             .a = View(op.a, p.m, p.k, a_t),
             .b = View(op.b, p.k, p.n, b_t),
             .c = op.c.data(),
             .ldc = p.n,
             .leaves = p.leaves,
             .parts = p.parts,
             .accumulate = p.accumulate};
  return op;
}

std::vector<float> Product(const Kernels& kernels, const Problem& problem) {
  Operands op = MakeOperands(problem);
  kernels.gemm(op.args);
  return op.c;
}

void ExpectSameBits(const Problem& problem) {
  SCOPED_TRACE(testing::Message()
               << problem.m << "x" << problem.n << "x" << problem.k
               << " leaves " << problem.leaves << " parts " << problem.parts);
  ExpectSameBitsOnAllIsas(
      [&](const Kernels& kernels) { return Product(kernels, problem); });
}

// The chain of one leaf and the tree over leaves, as the header words them.
float Chain(const std::vector<float>& a, const std::vector<float>& b,
            int64_t begin, int64_t end) {
  float acc = 0.0F;
  for (int64_t k = begin; k < end; ++k) acc = std::fmaf(a[k], b[k], acc);
  return acc;
}

TEST(Gemm, IsAChainOverEachLeafAndATreeOverLeaves) {
  const int64_t k = 48;
  const std::vector<float> a = Normals("a", k);
  const std::vector<float> b = Normals("b", k);
  const auto leaf = [&](int64_t g, int64_t leaves) {
    return Chain(a, b, g * k / leaves, (g + 1) * k / leaves);
  };
  const float one = leaf(0, 1);
  const float three = (leaf(0, 3) + leaf(1, 3)) + leaf(2, 3);
  const float four = (leaf(0, 4) + leaf(1, 4)) + (leaf(2, 4) + leaf(3, 4));
  const float six = ((leaf(0, 6) + leaf(1, 6)) + (leaf(2, 6) + leaf(3, 6))) +
                    (leaf(4, 6) + leaf(5, 6));
  const Kernels& kernels = KernelsFor(DetectIsa());
  EXPECT_EQ(Product(kernels, {1, 1, k, 1})[0], one);
  EXPECT_EQ(Product(kernels, {1, 1, k, 3})[0], three);
  EXPECT_EQ(Product(kernels, {1, 1, k, 4})[0], four);
  EXPECT_EQ(Product(kernels, {1, 1, k, 6})[0], six);
  EXPECT_NE(one, four);
}

TEST(Gemm, ChainsThePartsOfALeafInOrder) {
  const std::vector<float> a = Normals("a", 24);
  const std::vector<float> b = Normals("b", 24);
  // Two parts of 12, two leaves: leaf 0 is [0,6) then [12,18).
  float leaf[2] = {0.0F, 0.0F};
  for (int64_t g = 0; g < 2; ++g) {
    for (const int64_t part : {0, 12}) {
      for (int64_t k = part + 6 * g; k < part + 6 * g + 6; ++k) {
        leaf[g] = std::fmaf(a[k], b[k], leaf[g]);
      }
    }
  }
  const Problem problem = {1, 1, 24, 2, 2};
  EXPECT_EQ(Product(KernelsFor(Isa::kScalar), problem)[0], leaf[0] + leaf[1]);
  ExpectSameBits(problem);
}

TEST(Gemm, HasTheSameBitsOnAllIsasAroundTileEdges) {
  for (const int64_t m : {1, 5, 6, 7, 12, 13}) {
    for (const int64_t n : {1, 15, 16, 17, 31, 32, 33}) {
      ExpectSameBits({m, n, 24, 8, 1, Layout::kNT});
    }
  }
}

TEST(Gemm, HasTheSameBitsOnAllIsasInEveryLayout) {
  for (const Layout layout :
       {Layout::kNN, Layout::kNT, Layout::kTN, Layout::kTT}) {
    ExpectSameBits({13, 37, 40, 4, 1, layout, false});
    ExpectSameBits({13, 37, 40, 5, 2, layout, true});
  }
}

TEST(Gemm, HasTheSameBitsOnAllIsasAcrossBlocks) {
  ExpectSameBits({3, 5, 1200});  // chunks of k
  ExpectSameBits({3, 5, 1200, 8});
  ExpectSameBits({3, 5, 1200, 5, 2});
  ExpectSameBits({3, 5, 384 * 2, 4, 1, Layout::kNN, true});  // leaf = chunk end
  ExpectSameBits({151, 3, 400, 8, 1, Layout::kTN});          // blocks of m
  ExpectSameBits({2, 1100, 400, 8, 1, Layout::kNT});         // blocks of n
}

TEST(Gemm, HasTheSameBitsOnAllIsasForAnyNumberOfLeaves) {
  for (int64_t leaves = 1; leaves <= 33; ++leaves) {
    ExpectSameBits({2, 3, 2 * leaves, leaves});
  }
}

TEST(Gemm, TreatsAnEmptySumAsZero) {
  for (const Isa isa : {Isa::kScalar, DetectIsa()}) {
    float c[2] = {-0.0F, 3.0F};
    KernelsFor(isa).gemm(
        {.m = 1, .n = 2, .k = 0, .c = c, .ldc = 2, .accumulate = true});
    EXPECT_EQ(std::bit_cast<uint32_t>(c[0]), 0U);
    EXPECT_EQ(c[1], 3.0F);
    KernelsFor(isa).gemm({.m = 1, .n = 2, .k = 0, .c = c, .ldc = 2});
    EXPECT_EQ(c[1], 0.0F);
  }
}

TEST(Gemm, WritesNothingOutsideItsRowsAndColumns) {
  for (const Isa isa : {Isa::kScalar, DetectIsa()}) {
    Operands op = MakeOperands({7, 17, 8});
    std::vector<float> c(8 * 20, 42.0F);
    op.args.c = c.data();
    op.args.ldc = 20;
    KernelsFor(isa).gemm(op.args);
    for (int64_t i = 0; i < 8; ++i) {
      for (int64_t j = 0; j < 20; ++j) {
        EXPECT_EQ(c[i * 20 + j] == 42.0F, i >= 7 || j >= 17) << i << "," << j;
      }
    }
  }
}

TEST(Gemm, GivesTheSameBitsWhereverAnElementLies) {
  const Problem problem = {29, 50, 64, 8};
  const Operands whole = MakeOperands(problem);
  const Kernels& kernels = KernelsFor(DetectIsa());
  const std::vector<float> expected = Product(kernels, problem);
  for (const int64_t m : {1, 4, 11}) {
    for (const int64_t n : {3, 16, 21}) {
      std::vector<float> c(29 * 50);
      for (int64_t i = 0; i < 29; i += m) {
        for (int64_t j = 0; j < 50; j += n) {
          GemmArgs args = whole.args;
          args.m = std::min(m, 29 - i);
          args.n = std::min(n, 50 - j);
          args.a.data += i * args.a.row_stride;
          args.b.data += j * args.b.col_stride;
          args.c = c.data() + i * 50 + j;
          kernels.gemm(args);
        }
      }
      EXPECT_EQ(Bits(c), Bits(expected)) << m << "x" << n;
    }
  }
}

TEST(Gemm, AddsUpOverRanksThatHoldContiguousLeaves) {
  const Problem problem = {4, 5, 64, 8};
  const Operands whole = MakeOperands(problem);
  const Kernels& kernels = KernelsFor(DetectIsa());
  std::vector<float> half[2];
  for (int64_t rank = 0; rank < 2; ++rank) {
    half[rank].resize(20);
    GemmArgs args = whole.args;
    args.k = 32;
    args.leaves = 4;
    args.a.data += 32 * rank * args.a.col_stride;
    args.b.data += 32 * rank * args.b.row_stride;
    args.c = half[rank].data();
    kernels.gemm(args);
  }
  for (int64_t i = 0; i < 20; ++i) half[0][i] += half[1][i];
  EXPECT_EQ(Bits(half[0]), Bits(Product(kernels, problem)));
}

TEST(Gemm, AddsTheWholeResultToCOnce) {
  const Kernels& kernels = KernelsFor(DetectIsa());
  const std::vector<float> sum = Product(kernels, {4, 5, 64, 8});
  const std::vector<float> c = Normals("c", 20);
  const std::vector<float> both =
      Product(kernels, {4, 5, 64, 8, 1, Layout::kNN, true});
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(both[i], c[i] + sum[i]);
}

}  // namespace
}  // namespace shardshift::kernels
