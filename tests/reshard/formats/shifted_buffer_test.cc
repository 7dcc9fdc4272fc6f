// Shifted state against plain loops that shift it.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/shifted_buffer.h"

#include <gtest/gtest.h>

#include <ostream>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"

namespace shardshift::reshard {

void PrintTo(const ShiftedRun& run, std::ostream* out) {
  *out << "[" << run.elements.begin << "," << run.elements.end << ") in "
       << run.holder << " at " << run.begin;
}

namespace {

using ::testing::ElementsAre;

// What each stored parameter holds after the fault, element by element. Each
// element of the buffer's parameters has a value of its own; gaps are 0.
struct Shifted {
  std::vector<int64_t> first_values;  // by parameter
  std::vector<std::vector<int64_t>> stored;
};

Shifted ShiftByLoops(const FlatBuffer& flat,
                     const std::vector<bool>& is_stored) {
  Shifted made;
  std::vector<int64_t> padded(flat.num_elements, 0);
  int64_t value = 1;
  for (const Range& range : flat.parameters) {
    made.first_values.push_back(value);
    for (int64_t i = range.begin; i < range.end; ++i) padded[i] = value++;
  }
  std::vector<int64_t> compact;
  for (const FlatBuffer::Bucket& bucket : flat.buckets) {
    for (int64_t i = 0; i < bucket.unpadded; ++i) {
      compact.push_back(padded[bucket.range.begin + i]);
    }
  }
  made.stored.resize(flat.parameters.size());
  for (size_t p = 0; p < flat.parameters.size(); ++p) {
    if (!is_stored[p]) continue;
    for (int64_t i = flat.parameters[p].begin; i < flat.parameters[p].end;
         ++i) {
      made.stored[p].push_back(i < std::ssize(compact) ? compact[i] : 0);
    }
  }
  return made;
}

// Every run holds the values that belong there, and what no run holds is under
// no name. Gives how many elements are lost.
int64_t CheckRuns(const FlatBuffer& flat, const std::vector<bool>& is_stored) {
  const Shifted shifted = ShiftByLoops(flat, is_stored);
  std::set<int64_t> there;
  for (const auto& values : shifted.stored) {
    there.insert(values.begin(), values.end());
  }
  int64_t lost = 0;
  for (size_t p = 0; p < flat.parameters.size(); ++p) {
    int64_t element = 0;
    for (const ShiftedRun& run :
         FindShifted(flat, is_stored, static_cast<int64_t>(p))) {
      EXPECT_EQ(run.elements.begin, element);
      EXPECT_FALSE(run.elements.empty());
      for (; element < run.elements.end; ++element) {
        const int64_t value = shifted.first_values[p] + element;
        if (run.holder < 0) {
          EXPECT_FALSE(there.contains(value));
          ++lost;
          continue;
        }
        const std::vector<int64_t>& held = shifted.stored[run.holder];
        const int64_t at = run.begin + element - run.elements.begin;
        EXPECT_LT(at, std::ssize(held));
        if (at >= std::ssize(held)) return lost;
        EXPECT_EQ(held[at], value);
      }
    }
    EXPECT_EQ(element, flat.parameters[p].size());
  }
  return lost;
}

TEST(ShiftedBufferTest, WorkedExample) {
  // In the buffer: 200 elements, padded to 256, then 100 and 50.
  const std::vector<FlatParameter> parameters = {{50}, {100}, {200}};
  const FlatBuffer flat = MakeFlatBuffer(
      parameters, {.distributed_optimizer = true, .bucket_size = 150});
  ASSERT_THAT(flat.parameters,
              ElementsAre(Range{384, 434}, Range{256, 356}, Range{0, 200}));
  EXPECT_EQ(ShiftOf(flat, 2), 0);
  EXPECT_EQ(ShiftOf(flat, 1), 56);
  EXPECT_EQ(ShiftOf(flat, 0), 56);
  const std::vector<bool> all = {true, true, true};
  EXPECT_THAT(FindShifted(flat, all, 2),
              ElementsAre(ShiftedRun{{0, 200}, 2, 0}));
  // Its first 56 elements came to lie where the padding was.
  EXPECT_THAT(
      FindShifted(flat, all, 1),
      ElementsAre(ShiftedRun{{0, 56}, -1, 0}, ShiftedRun{{56, 100}, 1, 0}));
  // From 328 on; its neighbour has what is before 356, its own is from 384 on.
  EXPECT_THAT(
      FindShifted(flat, all, 0),
      ElementsAre(ShiftedRun{{0, 28}, 1, 72}, ShiftedRun{{28, 50}, -1, 0}));
  // Without what another rank tells.
  EXPECT_THAT(FindShifted(flat, {true, false, true}, 0),
              ElementsAre(ShiftedRun{{0, 50}, -1, 0}));
  EXPECT_EQ(CheckRuns(flat, all), 56 + 22);
}

TEST(ShiftedBufferTest, WithoutPaddingAllIsInItsPlace) {
  const std::vector<FlatParameter> parameters = {{128}, {256}, {64}, {64}};
  const FlatBuffer flat = MakeFlatBuffer(
      parameters, {.distributed_optimizer = true, .bucket_size = 100});
  ASSERT_EQ(flat.buckets.size(), 3);
  for (int64_t p = 0; p < 4; ++p) {
    EXPECT_EQ(ShiftOf(flat, p), 0);
    EXPECT_THAT(FindShifted(flat, {true, true, true, true}, p),
                ElementsAre(ShiftedRun{{0, flat.parameters[p].size()}, p, 0}));
  }
}

TEST(ShiftedBufferTest, AllButTheLostComesBack) {
  std::mt19937 random(5);
  const auto draw = [&random](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  int64_t lost = 0;
  int64_t shifted = 0;
  for (int trial = 0; trial < 400; ++trial) {
    SCOPED_TRACE(trial);
    std::vector<FlatParameter> parameters(draw(1, 12));
    std::vector<bool> is_stored;
    for (FlatParameter& parameter : parameters) {
      parameter.num_elements = draw(0, 3) == 0 ? draw(1, 20) : draw(1, 700);
      is_stored.push_back(trial % 2 == 0 || draw(0, 3) > 0);
    }
    parameters.front().shared_embedding = draw(0, 2) == 0;
    FlatBufferOptions options = {.data_ranks = draw(1, 6),
                                 .distributed_optimizer = true};
    if (draw(0, 4) > 0) options.bucket_size = draw(1, 1500);
    const FlatBuffer flat = MakeFlatBuffer(parameters, options);
    lost += CheckRuns(flat, is_stored);
    if (::testing::Test::HasFailure()) return;
    shifted += ShiftOf(flat, 0) > 0 ? 1 : 0;
  }
  // Or nothing was tried.
  EXPECT_GT(lost, 1000);
  EXPECT_GT(shifted, 100);
}

}  // namespace
}  // namespace shardshift::reshard
