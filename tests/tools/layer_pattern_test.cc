// SPDX-License-Identifier: Apache-2.0
#include "tools/layer_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testutil/status_matchers.h"

namespace shardshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MATCHER_P(Holds, matcher, "") {
  return arg.ok() && ExplainMatchResult(matcher, *arg, result_listener);
}

TEST(ParseDenseLayers, OfANumberAreThoseBetween) {
  EXPECT_THAT(ParseDenseLayers("1", 4), Holds(ElementsAre()));
  EXPECT_THAT(ParseDenseLayers("2", 5), Holds(ElementsAre(1, 3)));
  EXPECT_THAT(ParseDenseLayers("9", 3), Holds(ElementsAre(1, 2)));
}

TEST(ParseDenseLayers, OfAPatternAreTheZeros) {
  EXPECT_THAT(ParseDenseLayers("[0,1,1]", 3), Holds(ElementsAre(0)));
  EXPECT_THAT(ParseDenseLayers("([0]*1+[1]*3)", 4), Holds(ElementsAre(0)));
  EXPECT_THAT(ParseDenseLayers(" ( [1, 0] * 2 + [1] ) * 2", 10),
              Holds(ElementsAre(1, 3, 6, 8)));
}

TEST(ParseDenseLayers, AreRefusedWhereNothingElseFits) {
  for (const std::string text :
       {"", "0", "-1", "[0,1]", "[0,1,1,1]", "[0,2,1]", "[0,1,1", "[0,1]+",
        "[0]*", "[0]*99999999999999999999", "[0]*9223372036854775807", "[]",
        "([0,1,1]", "[0,1,1])", "import os", "[0]*3+[1]"}) {
    EXPECT_THAT(ParseDenseLayers(text, 3),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("--moe-layer-freq is")))
        << text;
  }
  EXPECT_THAT(ParseDenseLayers(std::string(100000, '('), 3),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("freq")));
}

}  // namespace
}  // namespace shardshift
