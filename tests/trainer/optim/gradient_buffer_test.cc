// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/gradient_buffer.h"

#include <gmock/gmock.h>

#include <bit>
#include <string>

#include "ckpt/core/status_macros.h"
#include "kernels/random.h"
#include "kernels/tree.h"
#include "tests/testutil/status_matchers.h"
#include "trainer/comm/thread_communicator.h"

namespace shardshift::trainer {
namespace {

constexpr int64_t kSize = 5;
constexpr int64_t kBlocks = 4;
constexpr int64_t kGroups = 6;
constexpr int64_t kSamplesPerGroup = 3;
constexpr int64_t kSamples = kGroups * kSamplesPerGroup;
constexpr int64_t kPlain = 0;  // entries of the buffer
constexpr int64_t kByBlock = 1;

const kernels::Kernels& Cpu() {
  return kernels::KernelsFor(kernels::DetectIsa());
}

// The gradient of element i by a sample, or by one block of its positions.
float GradientOf(int64_t sample, int64_t block, int64_t i) {
  return kernels::Normal(kernels::RandomKey(3, "gradient"),
                         (sample * kBlocks + block) * kSize + i);
}

GradientBuffer MakeBuffer(int64_t begin_group, int64_t end_group,
                          const GradientBuffer::Blocks& blocks = {
                              .count = kBlocks}) {
  return GradientBuffer(
      Cpu(),
      {{.range = {0, kSize}}, {.range = {kSize, 2 * kSize}, .by_block = true}},
      {0, 2 * kSize},
      SampleTree(kGroups, kSamplesPerGroup, begin_group, end_group), blocks);
}

// Of all blocks, or of some.
void Visit(GradientBuffer& buffer, int64_t first_sample, int64_t sample,
           int64_t first_block = 0, int64_t num_blocks = kBlocks) {
  const GradientBuffer::Target target = buffer.Open(kPlain, sample);
  for (int64_t i = 0; i < kSize; ++i) {
    const float value = GradientOf(first_sample + sample, 0, i);
    target.data[i] = target.accumulate ? target.data[i] + value : value;
  }
  buffer.Close(kPlain, sample);
  float* blocks = buffer.OpenBlocks(kByBlock, sample);
  for (int64_t block = 0; block < num_blocks; ++block) {
    for (int64_t i = 0; i < kSize; ++i) {
      blocks[block * kSize + i] +=
          GradientOf(first_sample + sample, first_block + block, i);
    }
  }
  buffer.Close(kByBlock, sample);
}

float TreeSum(const std::vector<float>& values) {
  std::vector<const float*> leaves;
  leaves.reserve(values.size());
  for (const float& value : values) leaves.push_back(&value);
  float sum = 0;
  kernels::CombineLeaves(leaves, 1, &sum);
  return sum;
}

// The sum of one group by the definition: a chain over samples for each block,
// a tree over blocks.
float GroupSum(int64_t group, int64_t blocks, int64_t i) {
  std::vector<float> chains;
  for (int64_t block = 0; block < blocks; ++block) {
    float chain = 0;
    for (int64_t n = 0; n < kSamplesPerGroup; ++n) {
      chain += GradientOf(group * kSamplesPerGroup + n, block, i);
    }
    chains.push_back(chain);
  }
  return TreeSum(chains);
}

uint32_t ExpectedBits(int64_t entry, int64_t i) {
  std::vector<float> groups;
  for (int64_t group = 0; group < kGroups; ++group) {
    groups.push_back(GroupSum(group, entry == kPlain ? 1 : kBlocks, i));
  }
  return std::bit_cast<uint32_t>(TreeSum(groups));
}

// The whole sums of ranks that hold the groups between `borders`.
std::vector<uint32_t> SummedBits(const std::vector<int64_t>& borders) {
  std::vector<GradientBuffer> buffers;
  std::vector<TreeBuffer> nodes;
  for (size_t rank = 0; rank + 1 < borders.size(); ++rank) {
    buffers.push_back(MakeBuffer(borders[rank], borders[rank + 1]));
    GradientBuffer& buffer = buffers.back();
    for (int64_t n = 0; n < buffer.tree().num_samples(); ++n) {
      Visit(buffer, borders[rank] * kSamplesPerGroup, n);
    }
  }
  for (const GradientBuffer& buffer : buffers) {
    for (const TreeBuffer& node : buffer.Nodes({0, 2 * kSize})) {
      nodes.push_back(node);
    }
  }
  std::vector<float> sum(2 * kSize);
  kernels::CombineNodes({0, kGroups}, nodes, 2 * kSize, sum.data());
  std::vector<uint32_t> bits;
  bits.reserve(sum.size());
  for (const float value : sum) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(GradientBuffer, SumsInCanonicalOrderOnAnyRanks) {
  std::vector<uint32_t> expected;
  for (const int64_t entry : {kPlain, kByBlock}) {
    for (int64_t i = 0; i < kSize; ++i) {
      expected.push_back(ExpectedBits(entry, i));
    }
  }
  EXPECT_EQ(SummedBits({0, 6}), expected);
  EXPECT_EQ(SummedBits({0, 3, 6}), expected);
  EXPECT_EQ(SummedBits({0, 2, 4, 6}), expected);
  EXPECT_EQ(SummedBits({0, 1, 2, 3, 4, 5, 6}), expected);
}

// The whole sums on every rank of those that share out the blocks.
std::vector<std::vector<uint32_t>> SummedBitsOfBlocksSharedOut(int ranks) {
  std::vector<std::vector<uint32_t>> bits(ranks);
  EXPECT_OK(RunRanks(ranks, {}, [&](Communicator& tensor) -> absl::Status {
    const int64_t here = kBlocks / ranks;
    GradientBuffer buffer =
        MakeBuffer(0, kGroups, {.count = here, .are_shared_out = ranks > 1});
    for (int64_t n = 0; n < kSamples; ++n) {
      Visit(buffer, 0, n, tensor.rank() * here, here);
    }
    SS_RETURN_IF_ERROR(buffer.SumBlocks(tensor));
    EXPECT_EQ(tensor.stats().of(CommKind::kTreeAllReduce),
              (CommStats::Count{1, kGroups * kSize * 4}));
    std::vector<float> sum(2 * kSize);
    kernels::CombineNodes({0, kGroups}, buffer.Nodes({0, 2 * kSize}), 2 * kSize,
                          sum.data());
    for (const float value : sum) {
      bits[tensor.rank()].push_back(std::bit_cast<uint32_t>(value));
    }
    return absl::OkStatus();
  }));
  return bits;
}

TEST(GradientBuffer, SumsBlocksOfTensorRanksBeforeGroups) {
  const std::vector<uint32_t> expected = SummedBits({0, kGroups});
  for (const int ranks : {2, 4}) {
    for (const std::vector<uint32_t>& bits :
         SummedBitsOfBlocksSharedOut(ranks)) {
      EXPECT_EQ(bits, expected) << ranks;
    }
  }
}

// Groups before blocks is another tree: were the bits equal, the test above
// would not tell.
TEST(GradientBuffer, DataTellGroupsBeforeBlocksApart) {
  int64_t differing = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    std::vector<float> blocks;
    for (int64_t block = 0; block < kBlocks; ++block) {
      std::vector<float> groups(kGroups, 0.0F);
      for (int64_t n = 0; n < kSamples; ++n) {
        groups[n / kSamplesPerGroup] += GradientOf(n, block, i);
      }
      blocks.push_back(TreeSum(groups));
    }
    if (std::bit_cast<uint32_t>(TreeSum(blocks)) != ExpectedBits(kByBlock, i)) {
      ++differing;
    }
  }
  EXPECT_GT(differing, 0);
}

// If a chain over all samples gave the same, the test above would be blind.
TEST(GradientBuffer, DataTellOrdersApart) {
  int64_t differing = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    float chain = 0;
    for (int64_t n = 0; n < kSamples; ++n) chain += GradientOf(n, 0, i);
    if (std::bit_cast<uint32_t>(chain) != ExpectedBits(kPlain, i)) ++differing;
  }
  EXPECT_GT(differing, 0);
}

TEST(GradientBuffer, StartsANewBatchWithoutTheOldOne) {
  GradientBuffer buffer = MakeBuffer(0, kGroups);
  std::vector<std::vector<float>> batches;
  for (int batch = 0; batch < 2; ++batch) {
    for (int64_t n = 0; n < kSamples; ++n) Visit(buffer, 0, n);
    const std::vector<TreeBuffer> nodes = buffer.Nodes({0, 2 * kSize});
    std::vector<float>& sum = batches.emplace_back(2 * kSize);
    kernels::CombineNodes({0, kGroups}, nodes, 2 * kSize, sum.data());
  }
  EXPECT_EQ(batches[0], batches[1]);
}

TEST(GradientBuffer, CountsItsSlotsAndBlocks) {
  // Three groups leave two sums; four open at most three.
  const int64_t slot = 2 * kSize * sizeof(float);
  const int64_t blocks = kBlocks * kSize * sizeof(float);
  EXPECT_EQ(MakeBuffer(0, 1).bytes(), slot + blocks);
  EXPECT_EQ(MakeBuffer(0, 3).bytes(), 2 * slot + blocks);
  EXPECT_EQ(MakeBuffer(0, 4).bytes(), 3 * slot + blocks);
  // Half of the blocks, and a vector a group.
  EXPECT_EQ(
      MakeBuffer(0, 4, {.count = kBlocks / 2, .are_shared_out = true}).bytes(),
      3 * slot + blocks / 2 + 4 * kSize * 4);
}

TEST(GradientBuffer, IsCompleteOnceEachEntryHasSeenEverySample) {
  GradientBuffer buffer = MakeBuffer(0, kGroups);
  const reshard::Range all = {0, 2 * kSize};
  const reshard::Range plain = {0, kSize};
  for (int batch = 0; batch < 2; ++batch) {
    buffer.BeginBatch();
    EXPECT_FALSE(buffer.IsComplete(plain));
    for (int64_t sample = 0; sample < kSamples - 1; ++sample) {
      Visit(buffer, 0, sample);
    }
    buffer.Open(kPlain, kSamples - 1);
    EXPECT_FALSE(buffer.IsComplete(plain));
    buffer.Close(kPlain, kSamples - 1);
    EXPECT_TRUE(buffer.IsComplete(plain));
    EXPECT_FALSE(buffer.IsComplete(all));
    buffer.OpenBlocks(kByBlock, kSamples - 1);
    buffer.Close(kByBlock, kSamples - 1);
    EXPECT_TRUE(buffer.IsComplete(all));
  }
}

TEST(GradientBuffer, IsCompleteWithSumsThatCameGroupByGroup) {
  GradientBuffer buffer = MakeBuffer(0, kGroups);
  buffer.BeginBatch();
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    EXPECT_FALSE(buffer.IsComplete({0, kSize}));
    if (!buffer.tree().At(sample).closes_group) continue;
    std::fill_n(buffer.GroupSum(kPlain, sample), kSize, 1.0F);
    buffer.Close(kPlain, sample);
  }
  EXPECT_TRUE(buffer.IsComplete({0, kSize}));
}

}  // namespace
}  // namespace shardshift::trainer
