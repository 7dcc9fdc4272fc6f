// Times the planner: as many source fragments as asked for, and twice as many,
// to the boxes of 1,024 ranks. Seconds are those of the processor: it runs on
// one thread, and touches no file.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/box.h"
#include "ckpt/core/status_macros.h"
#include "reshard/plan/plan.h"
#include "tools/cli.h"

namespace shardshift {
namespace {

using ckpt::Box;

constexpr int64_t kRanks = 1024;
constexpr int64_t kWidth = 4096;

struct BenchFlags {
  int64_t fragments = 1'000'000;
  int64_t runs = 5;
};

// One tensor, or many alike.
struct Case {
  std::vector<Box> sources;
  std::vector<Box> targets;
  int64_t tensors = 1;
};

// `whole` in `pieces` ranges of `dim`, as even as can be.
std::vector<Box> Cut(const Box& whole, size_t dim, int64_t pieces) {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < pieces; ++i) {
    Box box = whole;
    const int64_t begin = i * whole.extent[dim] / pieces;
    box.start[dim] += begin;
    box.extent[dim] = (i + 1) * whole.extent[dim] / pieces - begin;
    boxes.push_back(box);
  }
  return boxes;
}

std::vector<Box> Grid(const Box& whole, int64_t rows, int64_t columns) {
  std::vector<Box> boxes;
  for (const Box& row : Cut(whole, 0, rows)) {
    const std::vector<Box> cells = Cut(row, 1, columns);
    boxes.insert(boxes.end(), cells.begin(), cells.end());
  }
  return boxes;
}

// The boxes of `pieces` ranges of the flattened tensor.
std::vector<Box> Flat(const Box& whole, int64_t pieces) {
  const int64_t size = ckpt::NumElements(whole);
  std::vector<Box> boxes;
  for (int64_t i = 0; i < pieces; ++i) {
    const std::vector<Box> range =
        ckpt::RowMajorRange(whole, i * size / pieces, (i + 1) * size / pieces);
    boxes.insert(boxes.end(), range.begin(), range.end());
  }
  return boxes;
}

Case Rows(int64_t fragments) {
  const Box whole = ckpt::WholeBox({3 * fragments, kWidth});
  return {Cut(whole, 0, fragments), Cut(whole, 0, kRanks)};
}

Case Columns(int64_t fragments) {
  const Box whole = ckpt::WholeBox({kWidth, 3 * fragments});
  return {Cut(whole, 1, fragments), Cut(whole, 1, kRanks)};
}

Case Cells(int64_t fragments) {
  const auto side = std::llround(std::sqrt(static_cast<double>(fragments)));
  const Box whole = ckpt::WholeBox({3 * side, 3 * side});
  return {Grid(whole, side, side), Grid(whole, 32, 32)};
}

// Ranges that begin and end within rows are three boxes.
Case FlatRanges(int64_t fragments) {
  const Box whole = ckpt::WholeBox({fragments, kWidth + 1});
  return {Flat(whole, fragments / 3), Flat(whole, kRanks)};
}

// One box over half of the tensor, and small ones beside it.
Case OneHuge(int64_t fragments) {
  const Box whole = ckpt::WholeBox({3 * fragments, kWidth});
  const std::vector<Box> halves = Cut(whole, 1, 2);
  Case made = {Cut(halves[1], 0, fragments - 1), Cut(whole, 0, kRanks)};
  made.sources.push_back(halves[0]);
  return made;
}

// Weights of experts, each cut into flat ranges by its own data ranks.
Case Experts(int64_t fragments) {
  const Box whole = ckpt::WholeBox({2048, 7168});
  Case made = {Flat(whole, 21), Flat(whole, 8)};
  made.tensors = fragments / std::ssize(made.sources);
  return made;
}

struct Timing {
  int64_t sources = 0;
  int64_t copies = 0;
  double seconds = 0;
};

absl::StatusOr<Timing> Time(const Case& planned) {
  Timing timing = {.sources = planned.tensors * std::ssize(planned.sources)};
  const std::clock_t begin = std::clock();
  for (int64_t t = 0; t < planned.tensors; ++t) {
    SS_ASSIGN_OR_RETURN(const std::vector<reshard::BoxCopy> copies,
                        reshard::PlanCopies(planned.sources, planned.targets));
    timing.copies += std::ssize(copies);
  }
  timing.seconds =
      static_cast<double>(std::clock() - begin) / double{CLOCKS_PER_SEC};
  return timing;
}

absl::StatusOr<Timing> MedianTime(const Case& planned, int64_t runs) {
  std::vector<Timing> timings;
  for (int64_t run = 0; run < runs; ++run) {
    SS_ASSIGN_OR_RETURN(timings.emplace_back(), Time(planned));
  }
  const auto median = timings.begin() + runs / 2;
  std::nth_element(
      timings.begin(), median, timings.end(),
      [](const Timing& a, const Timing& b) { return a.seconds < b.seconds; });
  return *median;
}

absl::StatusOr<int> Run(const BenchFlags& flags) {
  const std::vector<std::pair<const char*, std::function<Case(int64_t)>>>
      cases = {{"rows", Rows},        {"columns", Columns},
               {"grid", Cells},       {"flat ranges", FlatRanges},
               {"one huge", OneHuge}, {"experts", Experts}};
  for (const auto& [name, make] : cases) {
    SS_ASSIGN_OR_RETURN(const Timing once,
                        MedianTime(make(flags.fragments), flags.runs));
    SS_ASSIGN_OR_RETURN(const Timing twice,
                        MedianTime(make(2 * flags.fragments), flags.runs));
    std::cout << absl::StreamFormat(
        "%-12s %8d fragments, %8d copies: %.3f s; %8d fragments: %.3f s, "
        "%.2f x\n",
        name, once.sources, once.copies, once.seconds, twice.sources,
        twice.seconds, twice.seconds / once.seconds);
  }
  return kExitDone;
}

}  // namespace
}  // namespace shardshift

int main(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = shardshift::MakeCli(
      "plan_bench",
      "Times the planner: source fragments, and twice as many, to the boxes of "
      "1,024 ranks. Prints medians, in seconds of one processor.");
  shardshift::BenchFlags flags;
  app->add_option("--fragments", flags.fragments, "of the source (1000000)")
      ->check(shardshift::IntIn(1024, int64_t{1} << 24))
      ->type_name("N");
  app->add_option("--runs", flags.runs, "of each (5)")
      ->check(shardshift::IntIn(1, 1000))
      ->type_name("N");
  return shardshift::RunCli(*app, argc, argv,
                            [&flags] { return shardshift::Run(flags); });
}
