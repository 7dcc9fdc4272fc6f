// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/comm/communicator_conformance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "ckpt/core/status_macros.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::trainer {

float LeafValue(int64_t leaf, int64_t index) {
  const uint64_t mixed =
      static_cast<uint64_t>(leaf * 1000003 + index + 1) * 0x9e3779b97f4a7c15u;
  const auto mantissa = static_cast<float>(mixed >> 40);  // 24 bits
  const int exponent = static_cast<int>(mixed % 13) - 6;
  return std::ldexp((mixed >> 20) % 2 == 0 ? mantissa : -mantissa, exponent);
}

float SerialTreeSum(const kernels::TreeNode& node, int64_t index) {
  const int64_t leaves = node.end - node.begin;
  if (leaves == 1) return LeafValue(node.begin, index);
  int64_t left = 1;
  while (left * 2 < leaves) left *= 2;
  return SerialTreeSum({node.begin, node.begin + left}, index) +
         SerialTreeSum({node.begin + left, node.end}, index);
}

std::byte ByteOf(int rank, int64_t index) {
  return static_cast<std::byte>(37 * rank + 11 * index + index / 256 + 1);
}

std::vector<std::byte> BytesOf(int rank, int64_t count) {
  std::vector<std::byte> bytes(count);
  for (int64_t i = 0; i < count; ++i) bytes[i] = ByteOf(rank, i);
  return bytes;
}

UnevenTreeNodes::UnevenTreeNodes(int64_t leaves, int64_t count,
                                 const Communicator& comm)
    : leaves_(leaves), count_(count) {
  const auto cut = [&](int64_t r) {
    return leaves * r * r / (comm.size() * comm.size());
  };
  for (const kernels::TreeNode& node :
       kernels::CompleteNodes(leaves, cut(comm.rank()), cut(comm.rank() + 1))) {
    std::vector<float>& value = values_.emplace_back(count);
    for (int64_t i = 0; i < count; ++i) value[i] = SerialTreeSum(node, i);
    buffers_.push_back({node, value.data()});
  }
}

namespace {

using ::testing::HasSubstr;

constexpr int64_t kLeafCounts[] = {1, 2, 3, 5, 8, 12, 13, 48};

uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }

// Elements of out[0, end - begin) that are not bit for bit the tree sum.
int64_t WrongSums(int64_t leaves, int64_t begin, int64_t end,
                  const float* out) {
  int64_t wrong = 0;
  for (int64_t i = begin; i < end; ++i) {
    if (Bits(out[i - begin]) != Bits(SerialTreeSum({0, leaves}, i))) ++wrong;
  }
  return wrong;
}

TEST_P(CommunicatorConformance, BarrierWaitsForAllRanks) {
  const auto now = [] {  // one clock for all processes of a machine
    return std::chrono::steady_clock::now().time_since_epoch().count();
  };
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      if (round % comm.size() == comm.rank()) {
        absl::SleepFor(absl::Milliseconds(1));
      }
      const int64_t come = now();
      SS_RETURN_IF_ERROR(comm.Barrier());
      const int64_t gone = now();
      std::vector<int64_t> all(size());
      SS_RETURN_IF_ERROR(
          comm.AllGather(std::as_bytes(std::span(&come, 1)),
                         std::as_writable_bytes(std::span(all))));
      EXPECT_GE(gone, *std::ranges::max_element(all));
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, BroadcastGivesAllTheRootsBytes) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int64_t count : kCounts) {
      for (int root = 0; root < size(); ++root) {
        std::vector<std::byte> data = BytesOf(comm.rank(), count);
        SS_RETURN_IF_ERROR(comm.Broadcast(data, root));
        EXPECT_EQ(data, BytesOf(root, count));
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, AllGatherPutsRanksInOrder) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int64_t count : kCounts) {
      std::vector<std::byte> all(count * size());
      SS_RETURN_IF_ERROR(comm.AllGather(BytesOf(comm.rank(), count), all));
      for (int64_t i = 0; i < std::ssize(all); ++i) {
        EXPECT_EQ(all[i], ByteOf(static_cast<int>(i / count), i % count));
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, AllGatherVTakesUnevenSizesInPlace) {
  std::vector<int64_t> sizes;
  std::vector<std::byte> expected;
  for (int r = 0; r < size(); ++r) {
    sizes.push_back(r % 3 == 1 ? 0 : 10 * r + 3);
    for (int64_t i = 0; i < sizes[r]; ++i) expected.push_back(ByteOf(r, i));
  }
  EXPECT_OK(Run([&](Communicator& comm) {
    std::vector<std::byte> all(expected.size());
    const int64_t place =
        std::accumulate(sizes.begin(), sizes.begin() + comm.rank(), int64_t{0});
    const auto mine = std::span(all).subspan(place, sizes[comm.rank()]);
    std::ranges::copy(BytesOf(comm.rank(), std::ssize(mine)), mine.begin());
    SS_RETURN_IF_ERROR(comm.AllGatherV(mine, sizes, all));
    EXPECT_EQ(all, expected);
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, AllReduceMaxIsElementwise) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int64_t count : kCounts) {
      std::vector<float> x(count);
      for (int64_t i = 0; i < count; ++i) x[i] = LeafValue(comm.rank(), i);
      SS_RETURN_IF_ERROR(comm.AllReduceMax(x));
      for (int64_t i = 0; i < count; ++i) {
        float expected = LeafValue(0, i);
        for (int r = 1; r < size(); ++r) {
          expected = std::max(expected, LeafValue(r, i));
        }
        EXPECT_EQ(x[i], expected) << i;
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, AllReduceMaxKeepsNanAndPrefersPlusZero) {
  EXPECT_OK(Run([&](Communicator& comm) {
    const bool last = comm.rank() == size() - 1;
    std::vector<float> x = {
        last ? std::numeric_limits<float>::quiet_NaN() : 1.0f,
        last ? 0.0f : -0.0f, -0.0f, -std::numeric_limits<float>::infinity()};
    SS_RETURN_IF_ERROR(comm.AllReduceMax(x));
    EXPECT_TRUE(std::isnan(x[0]));
    EXPECT_EQ(Bits(x[1]), Bits(0.0f));
    EXPECT_EQ(Bits(x[2]), Bits(-0.0f));
    EXPECT_EQ(x[3], -std::numeric_limits<float>::infinity());
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, AllReduceSumIsExactModulo64Bits) {
  const auto value = [](int rank, int64_t i) {
    return (int64_t{1} << 62) + 1000 * rank + i;
  };
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int64_t count : kCounts) {
      std::vector<int64_t> x(count);
      for (int64_t i = 0; i < count; ++i) x[i] = value(comm.rank(), i);
      SS_RETURN_IF_ERROR(comm.AllReduceSum(x));
      for (int64_t i = 0; i < count; ++i) {
        uint64_t expected = 0;
        for (int r = 0; r < size(); ++r) expected += value(r, i);
        EXPECT_EQ(static_cast<uint64_t>(x[i]), expected) << i;
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, TreeAllReduceHasTheBitsOfTheSerialTree) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int64_t leaves : kLeafCounts) {
      for (int64_t count : kCounts) {
        UnevenTreeNodes nodes(leaves, count, comm);
        std::vector<float> out(count);
        SS_RETURN_IF_ERROR(comm.TreeAllReduce(nodes.input(), out.data()));
        EXPECT_EQ(WrongSums(leaves, 0, count, out.data()), 0) << leaves;
      }
    }
    return absl::OkStatus();
  }));
}

// Longer than what a backend moves at a time.
TEST_P(CommunicatorConformance, LongTreeSumsHaveTheBitsOfTheSerialTree) {
  constexpr int64_t kCount = 1500001;
  constexpr int64_t kStride = 997;  // values are repeated: to make them is slow
  EXPECT_OK(Run([&](Communicator& comm) {
    const int r = comm.rank();
    std::vector<float> x(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      x[i] = i < kStride ? LeafValue(r, i) : x[i - kStride];
    }
    std::vector<float> sum(kStride);
    for (int64_t i = 0; i < kStride; ++i) {
      sum[i] = SerialTreeSum({0, size()}, i);
    }
    const auto wrong = [&](int64_t begin, std::span<const float> out) {
      int64_t count = 0;
      for (const float value : out) {
        if (Bits(value) != Bits(sum[begin++ % kStride])) ++count;
      }
      return count;
    };
    const TreeBuffer mine = {{r, r + 1}, x.data()};
    const TreeInput input = {size(), {&mine, 1}, kCount};
    const int64_t begin = kCount * r * r / (size() * size());
    const int64_t end = kCount * (r + 1) * (r + 1) / (size() * size());
    std::vector<float> out(end - begin);
    SS_RETURN_IF_ERROR(comm.TreeReduceScatter(input, begin, end, out.data()));
    EXPECT_EQ(wrong(begin, out), 0);
    SS_RETURN_IF_ERROR(comm.TreeAllReduce(input, x.data()));
    EXPECT_EQ(wrong(0, x), 0);
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, TreeAllReduceMayOverwriteANode) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int64_t leaves : kLeafCounts) {
      UnevenTreeNodes nodes(leaves, 1000, comm);
      std::vector<float> elsewhere(1000);
      float* out = nodes.first_node();
      if (out == nullptr) out = elsewhere.data();
      SS_RETURN_IF_ERROR(comm.TreeAllReduce(nodes.input(), out));
      EXPECT_EQ(WrongSums(leaves, 0, 1000, out), 0) << leaves;
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, TreeAllReduceInPlaceTakesOneRunARank) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int64_t leaves_per_rank : {1, 2, 4}) {
      const int64_t begin = comm.rank() * leaves_per_rank;
      std::vector<float> x(257);
      for (int64_t i = 0; i < std::ssize(x); ++i) {
        x[i] = SerialTreeSum({begin, begin + leaves_per_rank}, i);
      }
      SS_RETURN_IF_ERROR(comm.TreeAllReduceInPlace(x, leaves_per_rank));
      EXPECT_EQ(WrongSums(size() * leaves_per_rank, 0, 257, x.data()), 0);
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, TreeReduceScatterServesAnyRanges) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int64_t leaves : kLeafCounts) {
      for (int64_t count : kCounts) {
        UnevenTreeNodes nodes(leaves, count, comm);
        const int r = comm.rank();
        const int64_t begin = r % 3 == 0 ? 0 : count * r / (2 * size());
        const int64_t end = r % 3 == 1 ? begin : count - count * r / 100;
        std::vector<float> out(end - begin);
        SS_RETURN_IF_ERROR(
            comm.TreeReduceScatter(nodes.input(), begin, end, out.data()));
        EXPECT_EQ(WrongSums(leaves, begin, end, out.data()), 0) << leaves;
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, TreeReduceScatterMayOverwriteItsOwnRange) {
  EXPECT_OK(Run([&](Communicator& comm) {
    const int64_t leaves = size() * 2;
    for (int64_t count : kCounts) {
      const int r = comm.rank();
      std::vector<float> x(count);
      for (int64_t i = 0; i < count; ++i) {
        x[i] = SerialTreeSum({2 * r, 2 * r + 2}, i);
      }
      const TreeBuffer mine = {{2 * r, 2 * r + 2}, x.data()};
      const int64_t begin = count * r / size();
      const int64_t end = count * (r + 1) / size();
      SS_RETURN_IF_ERROR(comm.TreeReduceScatter({leaves, {&mine, 1}, count},
                                                begin, end, x.data() + begin));
      EXPECT_EQ(WrongSums(leaves, begin, end, x.data() + begin), 0);
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, TreeSumsRefuseALeafThatNobodyHolds) {
  EXPECT_OK(Run([&](Communicator& comm) {
    const float value = 1;
    const int64_t leaf = comm.rank() + (comm.rank() == size() - 1 ? 1 : 0);
    const TreeBuffer mine = {{leaf, leaf + 1}, &value};
    float out;
    EXPECT_THAT(
        comm.TreeAllReduce({size() + 1, {&mine, 1}, 1}, &out),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr(absl::StrCat("leaf ", size() - 1, " of ", size() + 1,
                                        " is in no node"))));
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, TreeSumsRefuseALeafThatTwoHold) {
  EXPECT_OK(Run([&](Communicator& comm) {
    const float value = 1;
    const TreeBuffer mine[] = {{{comm.rank(), comm.rank() + 1}, &value},
                               {{0, 1}, &value}};
    float out;
    EXPECT_THAT(
        comm.TreeReduceScatter({size(), mine, 1}, 0, 1, &out),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leaf 0 of")));
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, CountsCallsAndContributedBytes) {
  EXPECT_OK(Run([&](Communicator& comm) {
    std::vector<float> x(10, 1.0f);
    std::vector<std::byte> mine(3);
    std::vector<std::byte> all(3 * size());
    SS_RETURN_IF_ERROR(comm.TreeAllReduceInPlace(x, 1));
    SS_RETURN_IF_ERROR(comm.TreeAllReduceInPlace(x, 2));
    SS_RETURN_IF_ERROR(comm.AllGather(mine, all));
    SS_RETURN_IF_ERROR(comm.Broadcast(mine, 0));
    const CommStats& stats = comm.stats();
    EXPECT_EQ(stats.of(CommKind::kTreeAllReduce), (CommStats::Count{2, 80}));
    EXPECT_EQ(stats.of(CommKind::kAllGather), (CommStats::Count{1, 3}));
    EXPECT_EQ(stats.of(CommKind::kBroadcast),
              (CommStats::Count{1, comm.rank() == 0 ? 3 : 0}));
    EXPECT_EQ(stats.of(CommKind::kBarrier), (CommStats::Count{0, 0}));
    comm.ResetStats();
    EXPECT_EQ(comm.stats().of(CommKind::kAllGather), (CommStats::Count{0, 0}));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace shardshift::trainer
