// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/tree.h"
#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kVocab = 83;
constexpr int64_t kPadded = 96;
constexpr int64_t kLeaves = 8;
const std::vector<int32_t> kTargets = {0, 82, 40};

struct Result {
  std::vector<float> max, sum, predicted, loss, dlogits;
};

// Cross entropy with the columns dealt to `shards` owners, combined as the
// header says.
Result RunCrossEntropy(const Kernels& k, const std::vector<float>& logits,
                       int64_t shards) {
  const int64_t cols = kPadded / shards;
  std::vector<std::vector<float>> parts(shards);
  std::vector<LogitsShard> views(shards);
  for (int64_t s = 0; s < shards; ++s) {
    for (int64_t r = 0; r < kRows; ++r) {
      const auto begin = logits.begin() + r * kPadded + s * cols;
      parts[s].insert(parts[s].end(), begin, begin + cols);
    }
    views[s] = {parts[s].data(), kRows, cols, s * cols, kVocab};
  }
  Result result = {std::vector<float>(kRows, -1e30F), std::vector<float>(kRows),
                   std::vector<float>(kRows), std::vector<float>(kRows),
                   std::vector<float>(kRows * kPadded)};
  for (int64_t s = 0; s < shards; ++s) {
    std::vector<float> max(kRows);
    k.row_max({views[s], max.data()});
    for (int64_t r = 0; r < kRows; ++r) {
      result.max[r] = std::max(result.max[r], max[r]);
    }
  }
  std::vector<std::vector<float>> sums(shards, std::vector<float>(kRows));
  std::vector<const float*> sum_data;
  for (int64_t s = 0; s < shards; ++s) {
    std::vector<float> predicted(kRows);
    k.exp_sum({views[s], result.max.data(), kLeaves / shards, sums[s].data()});
    k.predicted_logit(
        {views[s], kTargets.data(), result.max.data(), predicted.data()});
    for (int64_t r = 0; r < kRows; ++r) result.predicted[r] += predicted[r];
    sum_data.push_back(sums[s].data());
  }
  CombineLeaves(sum_data, kRows, result.sum.data());
  TokenLoss(result.sum.data(), result.predicted.data(), kRows,
            result.loss.data());
  for (int64_t s = 0; s < shards; ++s) {
    k.cross_entropy_backward({views[s], kTargets.data(), result.max.data(),
                              result.sum.data(), parts[s].data()});
    for (int64_t r = 0; r < kRows; ++r) {
      std::copy_n(parts[s].begin() + r * cols, cols,
                  result.dlogits.begin() + r * kPadded + s * cols);
    }
  }
  return result;
}

std::vector<float> AllOf(const Result& result) {
  std::vector<float> all = result.max;
  for (const auto* part :
       {&result.sum, &result.predicted, &result.loss, &result.dlogits}) {
    Append(*part, all);
  }
  return all;
}

TEST(CrossEntropy, MatchesItsDefinitionInDouble) {
  const std::vector<float> logits = Normals("logits", kRows * kPadded);
  const Result result = RunCrossEntropy(KernelsFor(DetectIsa()), logits, 1);
  for (int64_t r = 0; r < kRows; ++r) {
    const float* row = &logits[r * kPadded];
    double sum = 0;
    for (int64_t c = 0; c < kVocab; ++c) sum += std::exp(row[c]);
    EXPECT_NEAR(result.loss[r], std::log(sum) - row[kTargets[r]], 1e-6);
    for (int64_t c = 0; c < kPadded; ++c) {
      double expected = c < kVocab ? std::exp(row[c]) / sum : 0;
      if (c == kTargets[r]) expected -= 1;
      EXPECT_NEAR(result.dlogits[r * kPadded + c], expected, 1e-6);
    }
  }
}

TEST(CrossEntropy, HasTheSameBitsForAnyNumberOfShards) {
  const std::vector<float> logits = Normals("logits", kRows * kPadded);
  const std::vector<float> whole =
      AllOf(RunCrossEntropy(KernelsFor(DetectIsa()), logits, 1));
  for (const int64_t shards : {2, 4, 8}) {
    EXPECT_EQ(
        Bits(AllOf(RunCrossEntropy(KernelsFor(DetectIsa()), logits, shards))),
        Bits(whole))
        << shards;
  }
}

TEST(CrossEntropy, HasTheSameBitsOnAllIsas) {
  const std::vector<float> logits = Normals("logits", kRows * kPadded);
  for (const int64_t shards : {1, 2, 8}) {
    ExpectSameBitsOnAllIsas([&](const Kernels& k) {
      return AllOf(RunCrossEntropy(k, logits, shards));
    });
  }
}

TEST(CrossEntropy, IgnoresPaddingColumns) {
  std::vector<float> logits = Normals("logits", kRows * kPadded);
  const std::vector<float> before =
      AllOf(RunCrossEntropy(KernelsFor(DetectIsa()), logits, 4));
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = kVocab; c < kPadded; ++c) logits[r * kPadded + c] = 1e9F;
  }
  EXPECT_EQ(Bits(AllOf(RunCrossEntropy(KernelsFor(DetectIsa()), logits, 4))),
            Bits(before));
}

TEST(RowMax, TurnsNegativeZeroIntoZero) {
  const float logits[2] = {-0.0F, -1.0F};
  for (const Isa isa : {Isa::kScalar, DetectIsa()}) {
    float max = 1;
    KernelsFor(isa).row_max({{logits, 1, 2, 0, 2}, &max});
    EXPECT_EQ(std::bit_cast<uint32_t>(max), 0U);
  }
}

TEST(RowMax, IsMinusInfinityWithoutValidColumns) {
  const float logit = 5;
  float max = 0;
  KernelsFor(DetectIsa()).row_max({{&logit, 1, 1, 10, 10}, &max});
  EXPECT_EQ(max, -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace shardshift::kernels
