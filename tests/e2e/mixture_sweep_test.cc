// The bits of a run with experts are the same on every layout of the experts.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

#ifdef SHARDSHIFT_SANITIZED
constexpr int64_t kIterations = 2;
#else
constexpr int64_t kIterations = 20;
#endif

using Log = std::vector<std::string>;

std::vector<TinyFamily> Mixtures() {
  return {{"Mixtral", TinyMixtral()}, {"QwenMoe", TinyQwenMoe()}};
}

// All layouts, or some in turn, fewer in 16 bits.
std::vector<reshard::Layout> SweptLayouts(size_t turn, Precision precision) {
#ifdef SHARDSHIFT_SWEEP
  const size_t turns = 1;
#else
  const size_t turns = precision == Precision::kFp32 ? 6 : 24;
#endif
  return EveryNth(TinyExpertLayouts(), turn + static_cast<size_t>(precision),
                  turns);
}

class MixtureSweep
    : public ::testing::TestWithParam<std::tuple<size_t, int64_t, Precision>> {
};

TEST_P(MixtureSweep, HasTheSameLossesAndNormsOnAllLayouts) {
  const auto& [index, micro_batch_size, precision] = GetParam();
  const TinyFamily mixture = Mixtures()[index];
  TrainOptions one_rank = MockRun(mixture.config, {}, kIterations);
  SetPrecision(precision, one_rank);
  ASSERT_OK_AND_ASSIGN(const Log expected, TrainAndLog(one_rank));
  ASSERT_EQ(expected.size(), kIterations);
  for (const reshard::Layout& layout :
       SweptLayouts(index + static_cast<size_t>(micro_batch_size), precision)) {
    TrainOptions run = MockRun(mixture.config, layout, kIterations);
    SetPrecision(precision, run);
    run.micro_batch_size = micro_batch_size;
    run.activations.sequence_parallel = layout.tensor > 1;
    ASSERT_OK_AND_ASSIGN(const Log log, TrainAndLog(run));
    EXPECT_EQ(log, expected)
        << mixture.name << " " << reshard::ToString(layout);
  }
}

std::string NameOfCase(
    const ::testing::TestParamInfo<MixtureSweep::ParamType>& test) {
  const auto& [mixture, micro_batch_size, precision] = test.param;
  return absl::StrCat(Mixtures()[mixture].name, "MicroBatch", micro_batch_size,
                      Name(precision));
}

INSTANTIATE_TEST_SUITE_P(
    Mixtures, MixtureSweep,
    ::testing::Combine(::testing::Range<size_t>(0, Mixtures().size()),
                       ::testing::Values(1, 2),
                       ::testing::Values(Precision::kFp32, Precision::kBf16,
                                         Precision::kFp16)),
    NameOfCase);

TEST(MixtureRecompute, HasTheBitsOfARunThatKeepsEverything) {
  for (const TinyFamily& mixture : Mixtures()) {
    constexpr int64_t kFew = 2;
    ASSERT_OK_AND_ASSIGN(const Log expected,
                         TrainAndLog(MockRun(mixture.config, {}, kFew)));
    for (const RecomputeGranularity granularity :
         {RecomputeGranularity::kSelective, RecomputeGranularity::kFull}) {
      TrainOptions run =
          MockRun(mixture.config,
                  {.tensor = 2, .pipeline = 2, .data = 2, .expert = 2}, kFew);
      run.micro_batch_size = 2;
      run.activations.sequence_parallel = true;
      run.activations.recompute = {.granularity = granularity};
      ASSERT_OK_AND_ASSIGN(const Log log, TrainAndLog(run));
      EXPECT_EQ(log, expected) << mixture.name << " " << Name(granularity);
    }
  }
}

}  // namespace
}  // namespace shardshift::trainer
