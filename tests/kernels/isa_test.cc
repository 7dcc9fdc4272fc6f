// SPDX-License-Identifier: Apache-2.0
#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace shardshift::kernels {
namespace {

class IsaTest : public testing::Test {
 protected:
  void TearDown() override { DetectWithout(); }
  // NOLINTBEGIN(concurrency-mt-unsafe): the test has one thread.
  static Isa DetectWith(const char* value) {
    setenv("SHARDSHIFT_ISA", value, 1);
    return DetectIsa();
  }
  static Isa DetectWithout() {
    unsetenv("SHARDSHIFT_ISA");
    return DetectIsa();
  }
  // NOLINTEND(concurrency-mt-unsafe)
};

TEST_F(IsaTest, VariableLowersTheChoice) {
  EXPECT_EQ(DetectWith("scalar"), Isa::kScalar);
  EXPECT_LE(DetectWith("avx2"), Isa::kAvx2);
}

TEST_F(IsaTest, VariableNeverRaisesTheChoice) {
  const Isa best = DetectWithout();
  EXPECT_TRUE(IsaSupported(best));
  EXPECT_EQ(DetectWith("avx512"), best);
  EXPECT_EQ(DetectWith("unheard-of"), best);
}

TEST_F(IsaTest, NamesAreTheVariablesValues) {
  EXPECT_EQ(IsaName(Isa::kScalar), "scalar");
  EXPECT_EQ(IsaName(Isa::kAvx2), "avx2");
  EXPECT_EQ(IsaName(Isa::kAvx512), "avx512");
}

}  // namespace
}  // namespace shardshift::kernels
