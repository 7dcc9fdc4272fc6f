// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <cassert>
#include <cmath>

#include "kernels/ref/ref.h"
#include "kernels/tree.h"

namespace shardshift::kernels::ref {
namespace {

float Leaf(const GemmArgs& args, int64_t i, int64_t j, int64_t leaf) {
  const int64_t part_stride = args.k / args.parts;
  const int64_t length = part_stride / args.leaves;
  float acc = 0.0F;
  for (int64_t part = 0; part < args.parts; ++part) {
    const int64_t begin = part * part_stride + leaf * length;
    for (int64_t k = begin; k < begin + length; ++k) {
      acc = std::fmaf(
          args.a.data[i * args.a.row_stride + k * args.a.col_stride],
          args.b.data[k * args.b.row_stride + j * args.b.col_stride], acc);
    }
  }
  return acc;
}

float Tree(const GemmArgs& args, int64_t i, int64_t j, const TreeNode& node) {
  if (node.end - node.begin == 1) return Leaf(args, i, j, node.begin);
  const int64_t split = SplitPoint(node);
  return Tree(args, i, j, {node.begin, split}) +
         Tree(args, i, j, {split, node.end});
}

void Gemm(const GemmArgs& args) {
  assert(args.leaves >= 1 && args.parts >= 1);
  assert(args.k % (args.parts * args.leaves) == 0);
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      float& c = args.c[i * args.ldc + j];
      const float result = Tree(args, i, j, {0, args.leaves});
      c = args.accumulate ? c + result : result;
    }
  }
}

}  // namespace

void InstallGemm(Kernels& table) { table.gemm = Gemm; }

}  // namespace shardshift::kernels::ref
