// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/json_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(CheckJsonDepth, CountsBracketsOutsideOfStrings) {
  const auto nested = [](int depth) {
    return absl::StrCat(std::string(depth, '['), std::string(depth, ']'));
  };
  EXPECT_OK(CheckJsonDepth(nested(kMaxJsonDepth)));
  EXPECT_THAT(CheckJsonDepth(nested(kMaxJsonDepth + 1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(std::to_string(kMaxJsonDepth))));
  EXPECT_OK(CheckJsonDepth(absl::StrCat("\"", nested(1000), R"(\" [[[" [1])")));
  std::string many = "[";
  for (int i = 0; i < 1000; ++i) many += "{},";
  EXPECT_OK(CheckJsonDepth(many + "1]"));
}

TEST(ParseStrictJson, GivesWhatNlohmannGives) {
  for (const char* text :
       {"null", "7", "-7", "1.5", "true", "\"a\\u00e9\"", "[]", "{}",
        R"([1,[2,{"a":[]}],{}])", R"({"a":{"b":[1,{"a":2}]},"b":3,"c":null})",
        R"([{"a":1},{"a":2}])", R"( {"a": 18446744073709551615} )"}) {
    ASSERT_OK_AND_ASSIGN(const json value, ParseStrictJson(text));
    EXPECT_EQ(value, json::parse(text)) << text;
  }
}

TEST(ParseStrictJson, RefusesAKeyThatComesTwice) {
  EXPECT_THAT(
      ParseStrictJson(R"({"a":{"b":1,"c":2,"b":1}})"),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("\"b\" comes twice")));
}

TEST(ParseStrictJson, RefusesWhatIsNoJson) {
  for (const std::string text :
       {"", "{", "[1,]", "{} {}", "NaN", "{\"a\":Infinity}", "'a'", "\"\xff\"",
        "\"\xed\xa0\x80\"", R"("\ud800")", "\"\t\"", "01"}) {
    EXPECT_THAT(ParseStrictJson(text), StatusIs(absl::StatusCode::kDataLoss,
                                                HasSubstr("no valid JSON")))
        << text;
  }
  EXPECT_THAT(ParseStrictJson(std::string("{}\0{", 4)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("byte 2")));
  EXPECT_THAT(ParseStrictJson("[1e999]"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("a number is out of range at byte 6")));
  EXPECT_THAT(ParseStrictJson(std::string(1'000'000, '[')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("deeper than 100")));
}

TEST(Quoted, EscapesAndCuts) {
  EXPECT_EQ(Quoted("a\n\xff"), R"("a\n\xff")");
  EXPECT_EQ(Quoted(std::string(100, 'a')),
            absl::StrCat("\"", std::string(100, 'a'), "\""));
  EXPECT_EQ(Quoted(std::string(101, 'a')),
            absl::StrCat("\"", std::string(100, 'a'), "...\""));
}

}  // namespace
}  // namespace shardshift::reshard
