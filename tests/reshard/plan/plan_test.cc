// SPDX-License-Identifier: Apache-2.0
#include "reshard/plan/plan.h"

#include <random>
#include <vector>

#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ckpt::Box;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// For each element of `whole` the box of a partition that holds it.
std::vector<int64_t> Holders(const Box& whole, const std::vector<Box>& boxes) {
  std::vector<int64_t> holders(ckpt::NumElements(whole), -1);
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (const int64_t element : ElementsOf(whole, boxes[i])) {
      holders[element] = static_cast<int64_t>(i);
    }
  }
  return holders;
}

TEST(PlanCopies, FillsEveryTargetElementOnceFromItsOnlySource) {
  std::mt19937 random(21);
  for (int round = 0; round < 1000; ++round) {
    const Box whole = RandomBox(4, random);
    const auto sources = ckpt::RandomPartition(whole, 12, random);
    auto targets = ckpt::RandomPartition(whole, 12, random);
    targets.resize(Uniform(random, 1, static_cast<int64_t>(targets.size())));
    const std::vector<int64_t> source_of = Holders(whole, sources);
    const std::vector<int64_t> target_of = Holders(whole, targets);

    ASSERT_OK_AND_ASSIGN(const std::vector<BoxCopy> copies,
                         PlanCopies(sources, targets));
    std::vector<int64_t> copied_from(source_of.size(), -1);
    int64_t last_target = 0;
    for (const BoxCopy& copy : copies) {
      EXPECT_LE(last_target, copy.target);
      last_target = copy.target;
      for (const int64_t element : ElementsOf(whole, copy.box)) {
        EXPECT_EQ(copied_from[element], -1) << "copied twice";
        EXPECT_EQ(target_of[element], copy.target);
        copied_from[element] = copy.source;
      }
    }
    for (size_t i = 0; i < source_of.size(); ++i) {
      EXPECT_EQ(copied_from[i], target_of[i] < 0 ? -1 : source_of[i]);
    }
  }
}

TEST(PlanCopies, GoesByTargetThenBySource) {
  // Columns out of order.
  const std::vector<Box> sources = {
      {{0, 4}, {4, 2}}, {{0, 0}, {4, 2}}, {{0, 2}, {4, 2}}};
  const std::vector<Box> targets = {{{2, 0}, {2, 6}}, {{0, 1}, {2, 4}}};
  ASSERT_OK_AND_ASSIGN(const std::vector<BoxCopy> copies,
                       PlanCopies(sources, targets));
  EXPECT_THAT(copies, ElementsAre(BoxCopy{0, 0, {{2, 4}, {2, 2}}},
                                  BoxCopy{1, 0, {{2, 0}, {2, 2}}},
                                  BoxCopy{2, 0, {{2, 2}, {2, 2}}},
                                  BoxCopy{0, 1, {{0, 4}, {2, 1}}},
                                  BoxCopy{1, 1, {{0, 1}, {2, 1}}},
                                  BoxCopy{2, 1, {{0, 2}, {2, 2}}}));
}

TEST(PlanCopies, TakesTargetsThatOverlap) {
  const std::vector<Box> sources = {{{0}, {4}}, {{4}, {4}}};
  const std::vector<Box> targets = {{{2}, {4}}, {{2}, {4}}, {{0}, {8}}};
  ASSERT_OK_AND_ASSIGN(const std::vector<BoxCopy> copies,
                       PlanCopies(sources, targets));
  EXPECT_EQ(copies.size(), 6);
}

TEST(PlanCopies, CopiesScalarsAndSkipsEmptyTargets) {
  const std::vector<Box> scalar = {Box{}};
  ASSERT_OK_AND_ASSIGN(std::vector<BoxCopy> copies, PlanCopies(scalar, scalar));
  EXPECT_THAT(copies, ElementsAre(BoxCopy{0, 0, Box{}}));
  const std::vector<Box> empty = {{{0, 0}, {0, 3}}};
  ASSERT_OK_AND_ASSIGN(copies, PlanCopies(empty, empty));
  EXPECT_THAT(copies, IsEmpty());
  ASSERT_OK_AND_ASSIGN(copies, PlanCopies({}, {}));
  EXPECT_THAT(copies, IsEmpty());
}

TEST(PlanCopies, NamesBothSourcesThatOverlap) {
  const std::vector<Box> sources = {
      {{0, 0}, {4, 8}}, {{4, 0}, {4, 8}}, {{3, 7}, {2, 1}}};
  const std::vector<Box> targets = {{{0, 0}, {1, 1}}};
  EXPECT_THAT(PlanCopies(sources, targets),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("[0:4,0:8]"), HasSubstr("[3:5,7:8]"),
                             HasSubstr("both hold [3:4,7:8]"))));
}

TEST(PlanCopies, RefusesTheSameSourceTwice) {
  const std::vector<Box> twice = {{{0}, {4}}, {{0}, {4}}};
  EXPECT_THAT(PlanCopies(twice, {}), StatusIs(absl::StatusCode::kDataLoss,
                                              HasSubstr("both hold [0:4]")));
  const std::vector<Box> scalars = {Box{}, Box{}};
  EXPECT_THAT(PlanCopies(scalars, {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("both hold []")));
}

TEST(PlanCopies, NamesTheTargetThatHasAHole) {
  const std::vector<Box> sources = {{{0, 0}, {2, 8}}, {{3, 0}, {1, 8}}};
  const std::vector<Box> targets = {{{0, 0}, {2, 8}}, {{1, 2}, {3, 4}}};
  EXPECT_THAT(PlanCopies(sources, targets),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("4 of the 12 elements of [1:4,2:6] have no "
                                 "source, as [2:3,2:6]")));
  EXPECT_THAT(PlanCopies({}, targets),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("16 of the 16")));
}

// Work that grew with sources times targets would never end.
TEST(PlanCopies, IsNearLinearForRegularCutsOfEitherDim) {
  constexpr int64_t kBoxes = 50'000;
  for (const size_t dim : {0, 1}) {
    const auto cut = [dim](int64_t extent) {
      std::vector<Box> boxes;
      for (int64_t at = 0; at < 6 * kBoxes; at += extent) {
        Box box = {{0, 0}, {3, 3}};
        box.start[dim] = at;
        box.extent[dim] = extent;
        boxes.push_back(box);
      }
      return boxes;
    };
    ASSERT_OK_AND_ASSIGN(const std::vector<BoxCopy> copies,
                         PlanCopies(cut(2), cut(3)));
    EXPECT_EQ(copies.size(), 4 * kBoxes);
  }
}

TEST(PlanCopies, FindsAnyMissingOrDoubledSource) {
  std::mt19937 random(22);
  for (int round = 0; round < 500; ++round) {
    const Box whole = RandomBox(4, random);
    const auto sources = ckpt::RandomPartition(whole, 10, random);
    const int64_t victim =
        Uniform(random, 0, static_cast<int64_t>(sources.size()) - 1);
    std::vector<Box> holed = sources;
    holed.erase(holed.begin() + victim);
    EXPECT_THAT(PlanCopies(holed, std::vector<Box>{whole}),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("no source"),
                               HasSubstr(ckpt::ToString(sources[victim])))));
    std::vector<Box> doubled = sources;
    Box part = sources[victim];
    for (int64_t& extent : part.extent) extent = Uniform(random, 1, extent);
    doubled.push_back(part);
    EXPECT_THAT(PlanCopies(doubled, std::vector<Box>{whole}),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("both hold"),
                               HasSubstr(ckpt::ToString(part)))));
  }
}

}  // namespace
}  // namespace shardshift::reshard
