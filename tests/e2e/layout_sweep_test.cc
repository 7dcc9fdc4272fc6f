// The bits of a run are the same on every layout.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

// A sanitizer takes fifty times as long, and finds what it finds at once.
#ifdef SHARDSHIFT_SANITIZED
constexpr int64_t kIterations = 3;
#else
constexpr int64_t kIterations = 20;
#endif
constexpr int64_t kFew = 3;

#ifdef SHARDSHIFT_SWEEP
constexpr int64_t kMicroBatchesIn16Bits[] = {1, 2};
#else
constexpr int64_t kMicroBatchesIn16Bits[] = {2};
#endif

using ::testing::AnyOf;
using ::testing::EndsWith;
using Log = std::vector<std::string>;

// A family, micro-batches, of which those of 8 are fewer than most stages, and
// a precision.
class LayoutSweep
    : public ::testing::TestWithParam<std::tuple<size_t, int64_t, Precision>> {
};

// All layouts, or each for some of the families and micro-batch sizes; fewer
// in 16 bits.
std::vector<reshard::Layout> SweptLayouts(size_t turn, Precision precision) {
#ifdef SHARDSHIFT_SWEEP
  const size_t turns = 1;
#else
  const size_t turns = precision == Precision::kFp32 ? 3 : 9;
#endif
  return EveryNth(TinyLayouts(), turn + static_cast<size_t>(precision), turns);
}

TEST_P(LayoutSweep, HasTheSameLossesAndNormsOnAllLayouts) {
  const auto& [index, micro_batch_size, precision] = GetParam();
  const TinyFamily family = TinyFamilies()[index];
  const int64_t iterations = micro_batch_size == 1 ? kIterations : kFew;
  TrainOptions one_rank = MockRun(family.config, {}, iterations);
  SetPrecision(precision, one_rank);
  ASSERT_OK_AND_ASSIGN(const Log expected, TrainAndLog(one_rank));
  ASSERT_EQ(expected.size(), iterations);
  for (const reshard::Layout& layout :
       SweptLayouts(index + static_cast<size_t>(micro_batch_size), precision)) {
    if (family.config.global_batch_size % (micro_batch_size * layout.data) !=
        0) {
      continue;
    }
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && layout.tensor == 1) continue;
      TrainOptions run = MockRun(family.config, layout, iterations);
      SetPrecision(precision, run);
      run.micro_batch_size = micro_batch_size;
      run.activations.sequence_parallel = sequence_parallel;
      ASSERT_OK_AND_ASSIGN(const Log log, TrainAndLog(run));
      EXPECT_EQ(log, expected)
          << NameOf(layout) << " sequence parallel " << sequence_parallel;
    }
  }
}

std::string NameOfCase(
    const ::testing::TestParamInfo<LayoutSweep::ParamType>& test) {
  const auto& [family, micro_batch_size, precision] = test.param;
  return absl::StrCat(TinyFamilies()[family].name, "MicroBatch",
                      micro_batch_size, Name(precision));
}

INSTANTIATE_TEST_SUITE_P(
    Families, LayoutSweep,
    ::testing::Combine(::testing::Range<size_t>(0, TinyFamilies().size()),
                       ::testing::Values(1, 2, 8),
                       ::testing::Values(Precision::kFp32)),
    NameOfCase);
INSTANTIATE_TEST_SUITE_P(
    Precisions, LayoutSweep,
    ::testing::Combine(::testing::Range<size_t>(0, TinyFamilies().size()),
                       ::testing::ValuesIn(kMicroBatchesIn16Bits),
                       ::testing::Values(Precision::kBf16, Precision::kFp16)),
    NameOfCase);

struct Kept {
  std::string name;
  ActivationOptions options;
};

std::vector<Kept> WaysOfRecomputing() {
  std::vector<Kept> ways;
  for (const bool sequence_parallel : {false, true}) {
    const std::string shards = sequence_parallel ? "Sharded" : "Whole";
    const auto add = [&](const std::string& name, const Recompute& recompute) {
      ways.push_back(
          {name + shards,
           {.sequence_parallel = sequence_parallel, .recompute = recompute}});
    };
    add("Selective", {.granularity = RecomputeGranularity::kSelective});
    for (const int64_t layers : {1, 3}) {
      for (const RecomputeMethod method :
           {RecomputeMethod::kUniform, RecomputeMethod::kBlock}) {
        add(absl::StrCat(Name(method), layers),
            {.granularity = RecomputeGranularity::kFull,
             .method = method,
             .num_layers = layers});
      }
    }
  }
  return ways;
}

class RecomputeSweep : public ::testing::TestWithParam<Kept> {};

TEST_P(RecomputeSweep, HasTheBitsOfRunsThatKeepEverything) {
  for (const TinyFamily& family : TinyFamilies()) {
    ASSERT_OK_AND_ASSIGN(const Log expected,
                         TrainAndLog(MockRun(family.config, {}, kFew)));
    for (const reshard::Layout& layout :
         {reshard::Layout{}, reshard::Layout{.tensor = 2, .pipeline = 2},
          reshard::Layout{.tensor = 4, .data = 2}}) {
      TrainOptions run = MockRun(family.config, layout, kFew);
      run.micro_batch_size = 2;
      run.activations = GetParam().options;
      ASSERT_OK_AND_ASSIGN(const Log log, TrainAndLog(run));
      EXPECT_EQ(log, expected) << family.name << " " << NameOf(layout);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, RecomputeSweep,
                         ::testing::ValuesIn(WaysOfRecomputing()),
                         [](const auto& test) { return test.param.name; });

TEST(LayoutSweepControl, OtherPrecisionsGiveOtherBitsAndFp16SkipsSome) {
  constexpr int64_t kFour = 4;
  std::vector<Log> logs;
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    TrainOptions run = MockRun(TinyGpt(), {}, kFour);
    SetPrecision(precision, run);
    ASSERT_OK_AND_ASSIGN(logs.emplace_back(), TrainAndLog(run));
  }
  EXPECT_NE(logs[0], logs[1]);
  EXPECT_THAT(logs[2].back(),
              AnyOf(EndsWith(" 1"), EndsWith(" 2"), EndsWith(" 3")));
}

// Controls: were these equal too, equality above would mean nothing.
TEST(LayoutSweepControl, OtherGranularitiesGiveOtherBits) {
  const RunConfig config = TinyGpt();
  ASSERT_OK_AND_ASSIGN(const Log log, TrainAndLog(MockRun(config, {}, 5)));
  // Groups of four: a group of two adds as the lowest level of the tree does.
  RunConfig other = config;
  other.numerics.data_granularity = 4;
  ASSERT_OK_AND_ASSIGN(const Log other_data,
                       TrainAndLog(MockRun(other, {}, 5)));
  EXPECT_NE(other_data, log);
  other = config;
  other.numerics.tensor_granularity = 4;
  ASSERT_OK_AND_ASSIGN(const Log other_tensor,
                       TrainAndLog(MockRun(other, {}, 5)));
  EXPECT_NE(other_tensor, log);
}

TEST(LayoutSweepControl, EachDropoutGivesOtherBits) {
  std::vector<Log> logs;
  for (const auto& [attention, hidden] :
       {std::pair(0.0, 0.0), std::pair(0.1, 0.0), std::pair(0.0, 0.1)}) {
    RunConfig config = TinyGpt();
    config.attention_dropout = attention;
    config.hidden_dropout = hidden;
    ASSERT_OK_AND_ASSIGN(logs.emplace_back(),
                         TrainAndLog(MockRun(config, {}, 1)));
  }
  EXPECT_NE(logs[0], logs[1]);
  EXPECT_NE(logs[0], logs[2]);
  EXPECT_NE(logs[1], logs[2]);
}

TEST(LayoutSweepControl, EveryIterationHasOtherBits) {
  for (const TinyFamily& family : TinyFamilies()) {
    ASSERT_OK_AND_ASSIGN(const Log log,
                         TrainAndLog(MockRun(family.config, {}, kIterations)));
    for (size_t i = 0; i < log.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        EXPECT_NE(log[i].substr(log[i].find(' ')),
                  log[j].substr(log[j].find(' ')));
      }
    }
  }
}

}  // namespace
}  // namespace shardshift::trainer
