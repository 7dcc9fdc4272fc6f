// Random tensors, cut at random, written by several threads in a random order:
// any box comes back bit by bit, to any place in memory, and fingerprints do
// not tell how the tensors were cut.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "ckpt/writer.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

constexpr unsigned kNumRuns = 200;
constexpr std::byte kUntouched{0xa5};

int64_t Uniform(std::mt19937& random, int64_t min, int64_t max) {
  return std::uniform_int_distribution<int64_t>(min, max)(random);
}

// Few in a run, all dtypes and 0 to 5 dims over the runs; extents are often 0
// or 1, and now and then a tensor is of several blocks.
std::vector<SampleTensor> SomeTensors(std::mt19937& random) {
  std::vector<SampleTensor> tensors;
  const int64_t num_tensors = Uniform(random, 1, 12);
  for (int64_t i = 0; i < num_tensors; ++i) {
    Tensor info = {absl::StrCat("layers.", i, ".w"),
                   "master",
                   static_cast<DType>(Uniform(random, 0, kNumDTypes - 1)),
                   {}};
    const int64_t ndim = Uniform(random, 0, 5);
    for (int64_t d = 0; d < ndim; ++d) {
      const int64_t kind = Uniform(random, 0, 19);
      info.shape.push_back(kind < 1   ? 0
                           : kind < 5 ? 1
                                      : Uniform(random, 2, ndim < 3 ? 40 : 9));
    }
    tensors.push_back({std::move(info), {}});
  }
  if (Uniform(random, 0, 19) == 0) {
    tensors.push_back({{"large", "master", DType::kC64, {3, 400'000}}, {}});
  }
  return tensors;
}

void Cut(std::vector<SampleTensor>& tensors, int64_t num_parts,
         std::mt19937& random) {
  for (SampleTensor& tensor : tensors) {
    tensor.pieces.clear();
    const auto max_boxes = static_cast<int>(Uniform(random, 1, 9));
    for (const Box& box :
         RandomPartition(WholeBox(tensor.info.shape), max_boxes, random)) {
      tensor.pieces.push_back({Uniform(random, 0, num_parts - 1), box});
    }
  }
}

// One part: its blocks in a random order from `num_threads` threads.
absl::StatusOr<PartReceipt> WritePart(const std::string& directory,
                                      int64_t part,
                                      const std::vector<FragmentSpec>& specs,
                                      int num_threads, std::mt19937& random) {
  auto writer = PartWriter::Create(directory, part, {1, "{}"}, specs);
  if (!writer.ok()) return writer.status();
  struct Task {
    int64_t fragment;
    int64_t block;
  };
  std::vector<Task> tasks;
  std::vector<std::vector<std::byte>> images;
  for (size_t f = 0; f < specs.size(); ++f) {
    const FragmentSpec& spec = specs[f];
    images.push_back(
        Payload({spec.tensor, spec.role, spec.dtype, spec.shape}, spec.box));
    for (int64_t b = 0; b < NumBlocks(std::ssize(images[f])); ++b) {
      tasks.push_back({static_cast<int64_t>(f), b});
    }
  }
  std::shuffle(tasks.begin(), tasks.end(), random);
  std::vector<std::thread> threads;
  threads.reserve(num_threads);
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < tasks.size(); i += num_threads) {
        const auto [fragment, block] = tasks[i];
        const auto rest =
            std::span(images[fragment]).subspan(block * kBlockBytes);
        EXPECT_OK((*writer)->WriteBlock(
            fragment, block,
            rest.first(std::min<size_t>(rest.size(), kBlockBytes))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return (*writer)->Close();
}

void Write(const std::string& run_dir, const std::vector<SampleTensor>& tensors,
           std::mt19937& random) {
  ASSERT_OK_AND_ASSIGN(const std::string partial, BeginCheckpoint(run_dir, 1));
  std::map<int64_t, std::vector<FragmentSpec>> parts;
  for (const SampleTensor& tensor : tensors) {
    const Tensor& info = tensor.info;
    for (const Piece& piece : tensor.pieces) {
      parts[piece.part].push_back(
          {info.name, info.role, info.dtype, info.shape, piece.box});
    }
  }
  std::vector<PartReceipt> receipts(parts.size());
  std::vector<std::thread> writers;
  for (auto& [part, specs] : parts) {
    std::shuffle(specs.begin(), specs.end(), random);
    writers.emplace_back([&, part = part, &specs = specs, seed = random(),
                          &receipt = receipts[writers.size()]] {
      std::mt19937 own(seed);
      const auto written =
          WritePart(partial, part, specs, 1 + static_cast<int>(seed % 3), own);
      ASSERT_OK(written);
      receipt = *written;
    });
  }
  for (std::thread& writer : writers) writer.join();
  std::shuffle(receipts.begin(), receipts.end(), random);
  ASSERT_OK(CommitCheckpoint(run_dir, {1, "{}"}, receipts, "{}", false));
}

// A box within `outer`, perhaps without elements.
Box RandomBox(const Box& outer, std::mt19937& random) {
  Box box = outer;
  for (size_t d = 0; d < box.start.size(); ++d) {
    const int64_t skip = Uniform(random, 0, outer.extent[d]);
    box.start[d] += skip;
    box.extent[d] = Uniform(random, 0, outer.extent[d] - skip);
  }
  return box;
}

// `what` lands in the image of dst_box, strided, and nothing else is touched.
void CheckRead(const Reader& reader, int64_t t, const Box& what,
               const Box& dst_box) {
  const Tensor& info = reader.table().tensors[t];
  const int64_t item_size = ItemSize(info.dtype);
  std::vector<std::byte> image(NumElements(dst_box) * item_size, kUntouched);
  std::vector<FragmentRead> reads;
  for (int64_t f = reader.FirstFragment(t); f < reader.FirstFragment(t + 1);
       ++f) {
    const auto common = Intersect(reader.table().fragments[f].box, what);
    if (common) reads.push_back({f, *common, image.data(), dst_box});
  }
  ASSERT_OK(reader.Read(reads));
  std::vector<std::byte> expected = Payload(info, dst_box);
  Shape index = dst_box.start;
  for (int64_t i = 0; i < NumElements(dst_box); ++i) {
    const Box element = {index, Shape(index.size(), 1)};
    if (!Intersect(what, element)) {
      std::fill_n(expected.begin() + i * item_size, item_size, kUntouched);
    }
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < dst_box.start[d] + dst_box.extent[d]) break;
      index[d] = dst_box.start[d];
    }
  }
  ASSERT_TRUE(image == expected)
      << Describe(info) << ToString(what) << " of " << ToString(dst_box);
}

void CheckContent(const Reader& reader,
                  const std::vector<SampleTensor>& tensors,
                  std::mt19937& random) {
  ASSERT_EQ(reader.table().tensors.size(), tensors.size());
  for (const SampleTensor& tensor : tensors) {
    const Tensor& info = tensor.info;
    ASSERT_OK_AND_ASSIGN(const int64_t t,
                         reader.FindTensor(info.name, info.role));
    ASSERT_EQ(reader.table().tensors[t], info);
    const Box whole = WholeBox(info.shape);
    std::vector<std::byte> image(NumElements(whole) * ItemSize(info.dtype));
    ASSERT_OK(reader.ReadTensor(t, whole, image.data()));
    ASSERT_TRUE(image == Payload(info, whole)) << Describe(info);
    if (info.name == "large") continue;
    for (int i = 0; i < 3; ++i) {
      const Box dst_box = RandomBox(whole, random);
      ASSERT_NO_FATAL_FAILURE(
          CheckRead(reader, t, RandomBox(dst_box, random), dst_box));
    }
  }
}

// Power is not lost here.
class NoSync : public SystemCalls {
 public:
  int FSync(int) override { return 0; }
};

TEST(Property, WhatIsSavedIsLoadedHoweverItWasCutAndWritten) {
  NoSync disk;
  const ScopedSystemCalls scope(disk);
  for (unsigned seed = 1; seed <= kNumRuns; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<SampleTensor> tensors = SomeTensors(random);
    std::vector<Table> tables;
    for (int cut = 0; cut < 2; ++cut) {
      const TempDir dir(InMemory());
      Cut(tensors, Uniform(random, 1, 4), random);
      ASSERT_NO_FATAL_FAILURE(Write(dir.path(), tensors, random));
      const std::string step_dir = JoinPath(dir.path(), StepName(1));
      ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(step_dir));
      ASSERT_NO_FATAL_FAILURE(CheckContent(*reader, tensors, random));
      ASSERT_EQ(Verify(step_dir, true, [](const Fault&) {})->num_faults, 0);
      tables.push_back(reader->table());
    }
    ASSERT_EQ(TensorFingerprints(tables[0]), TensorFingerprints(tables[1]));
    ASSERT_EQ(RootFingerprintOf(tables[0]), RootFingerprintOf(tables[1]));
  }
}

}  // namespace
}  // namespace shardshift::ckpt
