// Blocked matrix product. Legend: a block is up to kMc rows by nc columns of C,
// a tile kMr by kNr of them, held in registers over a chunk of up to kKc steps
// of k. Chunks cut the work, never a sum: between two chunks a tile's
// accumulator waits in memory.
//
// k is packed leaf by leaf, so that packed step t belongs to leaf t / leaf_k.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"

namespace shardshift::kernels::SS_ISA {
namespace {

// The accumulators of a tile fill the registers but for a few: 12 of 16 AVX
// registers, 24 of 32 AVX-512 ones.
#ifdef __AVX512F__
constexpr int64_t kMr = 12;
constexpr int64_t kVectors = 2;
#else
constexpr int64_t kMr = 6;
constexpr int64_t kVectors = 1;
#endif
constexpr int64_t kNr = 16 * kVectors;
constexpr int64_t kTileSize = kMr * kNr;

constexpr int64_t kKc = 384;           // A panel of B fits the L1 cache.
constexpr int64_t kMc = 144;           // A block of A fits the L2 cache.
constexpr int64_t kMaxNc = 1024;       // All k steps of nc columns of B
constexpr int64_t kPackedB = 1 << 20;  // take about this many floats.

constexpr int64_t kFlopsPerNs = 50;  // About what a core does.

int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The k axis in packed order: leaf by leaf, each leaf part by part.
class PackedAxis {
 public:
  explicit PackedAxis(const GemmArgs& args)
      : parts_(args.parts),
        part_stride_(args.k / args.parts),
        run_(args.k / (args.parts * args.leaves)) {}

  int64_t leaf_k() const { return run_ * parts_; }
  // The k index of packed step t, and how many steps from t on follow it with
  // consecutive k.
  int64_t Index(int64_t t) const {
    const int64_t run_index = t / run_;
    return run_index % parts_ * part_stride_ + run_index / parts_ * run_ +
           t % run_;
  }
  int64_t RunLength(int64_t t) const {
    return parts_ == 1 ? part_stride_ - t : run_ - t % run_;
  }

 private:
  int64_t parts_;
  int64_t part_stride_;
  int64_t run_;
};

// packed[t * kWidth + i] = source[i * stride + t * k_stride] for t < steps and
// i < count; +0 for count <= i < kWidth.
template <int64_t kWidth>
void PackRun(const float* source, int64_t stride, int64_t k_stride,
             int64_t count, int64_t steps, float* packed) {
  if (stride == 1 && count == kWidth) {
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t i = 0; i < kWidth; ++i) {
        packed[t * kWidth + i] = source[t * k_stride + i];
      }
    }
    return;
  }
  // A cache line of k at a time, or rows 4 KiB apart would evict each other.
  constexpr int64_t kBlock = 16;
  for (int64_t begin = 0; begin < steps; begin += kBlock) {
    const int64_t end = Min(begin + kBlock, steps);
    for (int64_t i = 0; i < kWidth; ++i) {
      for (int64_t t = begin; t < end; ++t) {
        packed[t * kWidth + i] =
            i < count ? source[i * stride + t * k_stride] : 0.0F;
      }
    }
  }
}

// Packs `count` rows or columns in panels of kWidth, over packed steps
// [begin,end). Panel q begins at packed + q * panel_stride.
template <int64_t kWidth>
void Pack(const float* source, int64_t stride, int64_t k_stride, int64_t count,
          const PackedAxis& axis, int64_t begin, int64_t end,
          int64_t panel_stride, float* packed) {
  for (int64_t first = 0; first < count; first += kWidth) {
    float* panel = packed + first / kWidth * panel_stride;
    for (int64_t t = begin; t < end;) {
      const int64_t steps = Min(axis.RunLength(t), end - t);
      PackRun<kWidth>(source + first * stride + axis.Index(t) * k_stride,
                      stride, k_stride, Min(kWidth, count - first), steps,
                      panel + (t - begin) * kWidth);
      t += steps;
    }
  }
}

// acc[i,j] = fma(a[t,i], b[t,j], acc[i,j]) for t = 0 .. steps - 1.
void MultiplyTile(const float* a, const float* b, int64_t steps, float* acc) {
  F16 sum[kMr][kVectors];
#pragma GCC unroll 12
  for (int64_t i = 0; i < kMr; ++i) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) {
      sum[i][v] = Load(acc + i * kNr + v * 16);
    }
  }
  for (int64_t t = 0; t < steps; ++t) {
    F16 row[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) row[v] = Load(b + t * kNr + v * 16);
#pragma GCC unroll 12
    for (int64_t i = 0; i < kMr; ++i) {
      const F16 value = Broadcast(a[t * kMr + i]);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) {
        sum[i][v] = Fma(value, row[v], sum[i][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int64_t i = 0; i < kMr; ++i) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) {
      Store(sum[i][v], acc + i * kNr + v * 16);
    }
  }
}

void AddTile(const float* tile, float* sum) {
  for (int64_t i = 0; i < kTileSize; i += 16) {
    Store(Load(sum + i) + Load(tile + i), sum + i);
  }
}

void ClearTile(float* tile) {
  for (int64_t i = 0; i < kTileSize; i += 16) Store(Broadcast(0.0F), tile + i);
}

// One tile of C on its way: a stack of tiles. While leaf g is summed, the
// popcount(g) lowest hold complete nodes of the leaves before it, largest
// first, as the bits of a binary counter do; the next holds the leaf's chain.
class TileSum {
 public:
  TileSum(float* stack, int64_t leaf_k) : stack_(stack), leaf_k_(leaf_k) {}

  static int64_t StackTiles(int64_t leaves) {
    int64_t tiles = 1;
    for (int64_t g = leaves - 1; g > 0; g /= 2) ++tiles;
    return tiles;
  }

  // Goes through packed steps [begin,end) of the panels a and b.
  void Advance(const float* a, const float* b, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end;) {
      const int64_t leaf = t / leaf_k_;
      const int64_t leaf_end = (leaf + 1) * leaf_k_;
      const int64_t stop = Min(end, leaf_end);
      float* chain = stack_ + __builtin_popcountll(leaf) * kTileSize;
      if (t == leaf * leaf_k_) ClearTile(chain);
      MultiplyTile(a + (t - begin) * kMr, b + (t - begin) * kNr, stop - t,
                   chain);
      if (stop == leaf_end) Merge(chain, __builtin_ctzll(leaf + 1));
      t = stop;
    }
  }

  // Combines what is left after the last leaf. The sum is then in stack[0].
  const float* Finish(int64_t leaves) {
    const int64_t nodes = __builtin_popcountll(leaves);
    Merge(stack_ + (nodes - 1) * kTileSize, nodes - 1);
    return stack_;
  }

 private:
  // Adds the top tile to the one below it, `times` times.
  static void Merge(float* top, int64_t times) {
    for (; times > 0; --times, top -= kTileSize) AddTile(top, top - kTileSize);
  }

  float* stack_;
  int64_t leaf_k_;
};

void WriteTile(const float* tile, int64_t rows, int64_t cols, bool accumulate,
               float* c, int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; j += 16) {
      const int64_t count = Min(16, cols - j);
      F16 result = Load(tile + i * kNr + j);
      if (accumulate) result = Load(c + i * ldc + j, count) + result;
      Store(result, c + i * ldc + j, count);
    }
  }
}

// Where one block of C finds its parts of the scratch memory.
struct Workspace {
  float* packed_a;  // [kMc / kMr][kc][kMr]
  float* packed_b;  // [nc / kNr][k][kNr]
  float* stacks;    // One for each tile of a block if k has several chunks.
  int64_t stack_size;
  bool one_chunk;

  float* Stack(int64_t i, int64_t j) const {
    if (one_chunk) return stacks;
    return stacks + (j / kNr * (kMc / kMr) + i / kMr) * stack_size;
  }
};

// C's block of rows x cols at (i0,j0), from packed B and packing A.
void MultiplyBlock(const GemmArgs& args, const PackedAxis& axis,
                   const Workspace& work, int64_t i0, int64_t rows, int64_t j0,
                   int64_t cols) {
  for (int64_t begin = 0; begin < args.k; begin += kKc) {
    const int64_t end = Min(begin + kKc, args.k);
    Pack<kMr>(args.a.data + i0 * args.a.row_stride, args.a.row_stride,
              args.a.col_stride, rows, axis, begin, end, kMr * (end - begin),
              work.packed_a);
    for (int64_t j = 0; j < cols; j += kNr) {
      const float* b = work.packed_b + j * args.k + begin * kNr;
      for (int64_t i = 0; i < rows; i += kMr) {
        TileSum sum(work.Stack(i, j), axis.leaf_k());
        sum.Advance(work.packed_a + i * (end - begin), b, begin, end);
        if (end < args.k) continue;
        WriteTile(sum.Finish(args.leaves), Min(kMr, rows - i),
                  Min(kNr, cols - j), args.accumulate,
                  args.c + (i0 + i) * args.ldc + j0 + j, args.ldc);
      }
    }
  }
}

// k = 0: C = +0, or C + (+0).
void AddNothing(const GemmArgs& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    float* row = args.c + i * args.ldc;
    for (int64_t j = 0; j < args.n; ++j) {
      row[j] = args.accumulate ? row[j] + 0.0F : 0.0F;
    }
  }
}

// What one thread computes.
void MultiplyRange(const GemmArgs& args) {
  const PackedAxis axis(args);
  const int64_t nc =
      Min(CeilDiv(args.n, kNr), Max(1, Min(kMaxNc, kPackedB / args.k) / kNr)) *
      kNr;
  const int64_t mc = Min(kMc, CeilDiv(args.m, kMr) * kMr);
  const int64_t kc = Min(kKc, args.k);
  const bool one_chunk = args.k <= kKc;
  const int64_t stack_size = TileSum::StackTiles(args.leaves) * kTileSize;
  const int64_t num_stacks = one_chunk ? 1 : (kMc / kMr) * (nc / kNr);
  float* scratch =
      ThreadScratch(mc * kc + nc * args.k + num_stacks * stack_size);
  const Workspace work = {.packed_a = scratch + nc * args.k,
                          .packed_b = scratch,
                          .stacks = scratch + nc * args.k + mc * kc,
                          .stack_size = stack_size,
                          .one_chunk = one_chunk};
  for (int64_t j0 = 0; j0 < args.n; j0 += nc) {
    const int64_t cols = Min(nc, args.n - j0);
    Pack<kNr>(args.b.data + j0 * args.b.col_stride, args.b.col_stride,
              args.b.row_stride, cols, axis, 0, args.k, kNr * args.k,
              work.packed_b);
    for (int64_t i0 = 0; i0 < args.m; i0 += kMc) {
      MultiplyBlock(args, axis, work, i0, Min(kMc, args.m - i0), j0, cols);
    }
  }
}

// Threads share out the longer side of C, in whole tiles.
void Gemm(const GemmArgs& args) {
  if (args.m == 0 || args.n == 0) return;
  if (args.k == 0) return AddNothing(args);
  const bool by_rows = args.m > args.n;
  const int64_t size = by_rows ? args.m : args.n;
  const int64_t tile = by_rows ? kMr : kNr;
  const int64_t tile_flops = 2 * args.k * tile * (by_rows ? args.n : args.m);
  ParallelRanges(CeilDiv(size, tile), tile_flops / kFlopsPerNs,
                 [&](int64_t begin, int64_t end) {
                   GemmArgs range = args;
                   const int64_t first = begin * tile;
                   const int64_t length = Min(end * tile, size) - first;
                   if (by_rows) {
                     range.m = length;
                     range.a.data += first * args.a.row_stride;
                     range.c += first * args.ldc;
                   } else {
                     range.n = length;
                     range.b.data += first * args.b.col_stride;
                     range.c += first;
                   }
                   MultiplyRange(range);
                 });
}

}  // namespace

void InstallGemm(Kernels& table) { table.gemm = Gemm; }

}  // namespace shardshift::kernels::SS_ISA
