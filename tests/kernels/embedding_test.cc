// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

const std::vector<int32_t> kIds = {5, 2, 5, 9, 4};

TEST(EmbeddingLookup, CopiesOwnedRowsAndClearsTheRest) {
  const std::vector<float> table = {40, 41, 50, 51};  // rows 4 and 5
  std::vector<float> out(10, 77);
  KernelsFor(DetectIsa())
      .embedding_lookup({kIds.data(), 5, table.data(), 4, 6, 2, out.data()});
  EXPECT_EQ(out, (std::vector<float>{50, 51, 0, 0, 50, 51, 0, 0, 40, 41}));
}

TEST(EmbeddingLookup, TurnsNegativeZeroIntoZero) {
  const int32_t id = 0;
  const float row = -0.0F;
  float out = 1;
  KernelsFor(DetectIsa()).embedding_lookup({&id, 1, &row, 0, 1, 1, &out});
  EXPECT_EQ(std::bit_cast<uint32_t>(out), 0U);
}

TEST(EmbeddingGrad, AddsOwnedRowsInTokenOrder) {
  // 1 is lost beside 1e8, so id 5 shows the order of tokens 0 and 2.
  const std::vector<float> dx = {-1e8F, 7, 1, 7, 2};
  std::vector<float> acc = {10, 1e8F};  // rows 4 and 5
  KernelsFor(DetectIsa())
      .embedding_grad({kIds.data(), 5, dx.data(), 4, 6, 1, acc.data()});
  EXPECT_EQ(acc, (std::vector<float>{12, 1}));
}

}  // namespace
}  // namespace shardshift::kernels
