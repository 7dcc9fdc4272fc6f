// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

constexpr int64_t kMuch = int64_t{1} << 40;  // nanoseconds, worth any thread

TEST(ThreadPool, SharesOutEveryItemOnce) {
  for (const int64_t num_threads : {1, 2, 3, 8}) {
    const ThreadPool pool(num_threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(count);
      std::atomic<int64_t> ranges = 0;
      ParallelRanges(count, kMuch, [&](int64_t begin, int64_t end) {
        ++ranges;
        for (int64_t i = begin; i < end; ++i) ++calls[i];
      });
      for (const std::atomic<int>& number : calls) EXPECT_EQ(number, 1);
      EXPECT_EQ(ranges, std::max<int64_t>(1, std::min(num_threads, count)));
    }
  }
}

TEST(ThreadPool, LeavesWhatIsNotWorthItInOnePiece) {
  const ThreadPool pool(4);
  int64_t ranges = 0;
  ParallelRanges(1000, 1, [&](int64_t, int64_t) { ++ranges; });
  EXPECT_EQ(ranges, 1);
}

TEST(ThreadPool, HandsOnWhatARangeThrowsAndGoesOn) {
  const ThreadPool pool(3);
  for (int64_t bad = 0; bad < 3; ++bad) {
    EXPECT_THROW(ParallelRanges(3, kMuch,
                                [&](int64_t begin, int64_t) {
                                  if (begin == bad) {
                                    throw std::runtime_error("no");
                                  }
                                }),
                 std::runtime_error);
  }
  std::atomic<int64_t> items = 0;
  ParallelRanges(9, kMuch, [&](int64_t begin, int64_t end) {
    ParallelRanges(end - begin, kMuch,
                   [&](int64_t first, int64_t last) { items += last - first; });
  });
  EXPECT_EQ(items, 9);
}

TEST(ThreadPool, IsThatOfOneThread) {
  const ThreadPool pool(2);
  std::jthread([] {
    int64_t ranges = 0;
    ParallelRanges(100, kMuch, [&](int64_t, int64_t) { ++ranges; });
    EXPECT_EQ(ranges, 1);
  }).join();
}

// Large enough to be shared out by all of five threads.
using Op = std::function<void(const Kernels&, float* out)>;

struct NamedOp {
  std::string name;
  int64_t outputs;
  Op run;
};

constexpr int64_t kRows = 601;
constexpr int64_t kCols = 303;
constexpr int64_t kSize = kRows * kCols;

NamedOp GemmOp(const std::string& name, int64_t m, int64_t n, int64_t k) {
  return {name, m * n, [=](const Kernels& kernels, float* out) {
            // Shifted rows of the same numbers.
            const auto a = Normals("a", m + k);
            const auto b = Normals("b", k + n);
            kernels.gemm({.m = m,
                          .n = n,
                          .k = k,
                          .a = {a.data(), 1, 1},
                          .b = {b.data(), 1, 1},
                          .c = out,
                          .ldc = n,
                          .leaves = 8});
          }};
}

std::vector<NamedOp> Ops() {
  static const auto x = Normals("x", 2 * kSize);
  static const auto dy = Normals("dy", kSize);
  static const auto one = Normals("one", kCols);
  std::vector<NamedOp> ops = {GemmOp("GemmRows", 611, 190, 400),
                              GemmOp("GemmCols", 190, 611, 400),
                              GemmOp("GemmOneRow", 1, 40001, 256)};
  ops.push_back({"AdamW", 3 * kSize, [](const Kernels& kernels, float* out) {
                   kernels.adamw({.param = out,
                                  .exp_avg = out + kSize,
                                  .exp_avg_sq = out + 2 * kSize,
                                  .grad = dy.data(),
                                  .count = kSize,
                                  .lr = 0.1});
                 }});
  ops.push_back(
      {"Gelu", kSize, [](const Kernels& kernels, float* out) {
         kernels.gelu_backward(
             {.dy = dy.data(), .x = x.data(), .count = kSize, .dx = out});
       }});
  ops.push_back(
      {"Swiglu", kSize, [](const Kernels& kernels, float* out) {
         kernels.swiglu_forward(
             {.x = x.data(), .rows = kRows, .width = kCols, .y = out});
       }});
  ops.push_back({"LayerNorm", kSize + 2 * kRows + 2 * kCols,
                 [](const Kernels& kernels, float* out) {
                   float* const mean = out + kSize;
                   float* const rstd = mean + kRows;
                   kernels.layer_norm_forward({.x = x.data(),
                                               .weight = one.data(),
                                               .bias = one.data(),
                                               .rows = kRows,
                                               .hidden = kCols,
                                               .eps = 1e-5F,
                                               .y = out,
                                               .mean = mean,
                                               .rstd = rstd});
                   kernels.layer_norm_weight_grad(
                       {.dy = dy.data(),
                        .x = x.data(),
                        .mean = mean,
                        .rstd = rstd,
                        .rows = kRows,
                        .hidden = kCols,
                        .grad_weight = rstd + kRows,
                        .grad_bias = rstd + kRows + kCols});
                 }});
  ops.push_back(
      {"Softmax", kRows * kRows, [](const Kernels& kernels, float* out) {
         std::copy_n(x.data(), kRows * kRows, out);
         kernels.causal_softmax_forward(
             {.scores = out, .size = kRows, .scale = 0.5F});
       }});
  return ops;
}

TEST(ThreadPool, LeavesTheBitsOfAnyKernelAsTheyAre) {
  const Kernels& kernels = KernelsFor(DetectIsa());
  for (const NamedOp& op : Ops()) {
    std::vector<float> expected(op.outputs);
    op.run(kernels, expected.data());
    for (const int64_t num_threads : {2, 3, 5}) {
      const ThreadPool pool(num_threads);
      std::vector<float> found(op.outputs);
      op.run(kernels, found.data());
      EXPECT_EQ(Bits(found), Bits(expected)) << op.name << " " << num_threads;
    }
  }
}

}  // namespace
}  // namespace shardshift::kernels
