// Checkpoints of every layout for every layout: what `reshard` makes is what
// the trainer would have saved, and a run goes on from either.
// With SHARDSHIFT_SWEEP all ordered pairs, else each layout with four others,
// under a sanitizer with one.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/e2e/saved_runs.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

constexpr int64_t kSaved = 2;  // iterations before the save
constexpr int64_t kEnd = 4;

struct Family {
  std::string name;
  RunConfig config;
};

// How far behind a layout those that it is paired with come.
std::vector<size_t> PartnerOffsets([[maybe_unused]] size_t num_layouts) {
#ifdef SHARDSHIFT_SWEEP
  std::vector<size_t> all(num_layouts);
  std::iota(all.begin(), all.end(), 0);
  return all;
#elif defined(SHARDSHIFT_SANITIZED)
  return {num_layouts / 3};
#else
  return {1, 17};
#endif
}

class CheckpointPairs : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    layouts_ = TinyLayouts();
    for (const reshard::Layout& layout : layouts_) {
      ASSERT_OK(TrainAndSave(config_, layout, kSaved, RunOf(layout)));
      files_.push_back(FilesBelow(RunOf(layout)));
    }
  }

  std::string RunOf(const reshard::Layout& layout) const {
    return scratch_.Path(NameOf(layout));
  }

  const RunConfig config_ = GetParam().config;
  ScratchDir scratch_;
  std::vector<reshard::Layout> layouts_;
  std::vector<std::map<std::string, std::string>> files_;
};

// With this A -> B -> A gives back A, byte for byte.
TEST_P(CheckpointPairs, ReshardMakesTheBytesOfTheTrainersSave) {
  for (size_t a = 0; a < layouts_.size(); ++a) {
    for (const size_t offset : PartnerOffsets(layouts_.size())) {
      const size_t b = (a + offset) % layouts_.size();
      SCOPED_TRACE(NameOf(layouts_[a]) + " to " + NameOf(layouts_[b]));
      const std::string made =
          scratch_.Path(std::to_string(a) + "to" + std::to_string(b));
      ASSERT_OK(Reshard(RunOf(layouts_[a]), made, layouts_[b]));
      EXPECT_EQ(FirstDifference(FilesBelow(made), files_[b]), "");
      std::filesystem::remove_all(made);
    }
  }
}

TEST_P(CheckpointPairs, RunsGoOnWithTheBitsOfAnUninterruptedOne) {
  ASSERT_OK_AND_ASSIGN(std::vector<std::string> expected,
                       TrainAndLog(MockRun(config_, {}, kEnd)));
  expected.erase(expected.begin(), expected.begin() + kSaved);
  for (size_t a = 0; a < layouts_.size(); ++a) {
    for (const size_t offset : PartnerOffsets(layouts_.size())) {
      const size_t b = (a + offset) % layouts_.size();
      SCOPED_TRACE(NameOf(layouts_[a]) + " to " + NameOf(layouts_[b]));
      ASSERT_OK_AND_ASSIGN(
          const std::vector<std::string> log,
          Resume(config_, layouts_[b], RunOf(layouts_[a]), kSaved, kEnd));
      EXPECT_EQ(log, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CheckpointPairs,
                         ::testing::Values(Family{"Gpt", TinyGpt()},
                                           Family{"Llama", TinyLlama()}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace shardshift::trainer
