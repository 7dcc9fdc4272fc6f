// What matches is as Python's re.match has it.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/name_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  const char* pattern;
  std::vector<const char*> matches;
  std::vector<const char*> others;
};

TEST(NamePatternTest, MatchesAsPythonDoes) {
  const std::vector<Case> cases = {
      {R"(^model\.norm\.weight$)",
       {"model.norm.weight"},
       {"model.norm.weightx", "xmodel.norm.weight", "modelxnorm.weight"}},
      {R"(\d+.mlp.dense.weight)",
       {"1.mlp.dense.weight", "12.mlp.dense.weights"},
       {"x.mlp.dense.weight", "1.mlp.dense.weigh", ".mlp.dense.weight"}},
      {"a*b?c+", {"c", "aaabccc", "bc", "ac"}, {"b", "aab", "abbc"}},
      {"(ab|cd)*$", {"", "ab", "abcdab"}, {"aab", "abc"}},
      {"(a|b|)c", {"ac", "bc", "c"}, {"ab", "d"}},
      {"(?:x|yz)+?q", {"xq", "yzxq"}, {"q", "yq"}},
      {"(a*)*b", {"b", "aaab"}, {"aaaa"}},
      {"((a|b)c?)+$", {"acb", "abab"}, {"cab"}},
      {"[a-c_.]x[^0-9]", {"bx.", ".xa", "_xz"}, {"dxa", "ax1", "ax"}},
      {R"([\d\]]+$)", {"12]", "]"}, {"a", "12a"}},
      {"[]a]b", {"]b", "ab"}, {"b"}},
      {R"(\w+\.\S\W)", {"a_1.x-", "b.y "}, {"a.x1", "a. -"}},
      {"a^b|c", {"cd"}, {"ab", "a^b"}},
      {"", {"", "anything"}, {}},
  };
  for (const Case& c : cases) {
    ASSERT_OK_AND_ASSIGN(const NamePattern pattern,
                         NamePattern::Parse(c.pattern));
    for (const char* name : c.matches) {
      EXPECT_TRUE(pattern.Matches(name)) << c.pattern << " " << name;
    }
    for (const char* name : c.others) {
      EXPECT_FALSE(pattern.Matches(name)) << c.pattern << " " << name;
    }
  }
}

TEST(NamePatternTest, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"a{2}", "(?=a)", "(?P<x>a)", R"(\bx)", R"((a)\1)",
                           "[[:alpha:]]", R"([\d-x])", "\xc3\xa9", "a\n"}) {
    EXPECT_THAT(
        NamePattern::Parse(text),
        StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("not understood")))
        << text;
  }
  for (const char* text :
       {"(a", "a)", "*a", "a**", "^*", "[a", "[z-a]", "\\", "a|+"}) {
    EXPECT_THAT(NamePattern::Parse(text),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("pattern")))
        << text;
  }
  EXPECT_THAT(NamePattern::Parse(std::string(1025, 'a')),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("1024")));
}

// Where backtracking would take longer than anybody waits.
TEST(NamePatternTest, TakesLinearTime) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "a?";
  for (int i = 0; i < 200; ++i) text += "a";
  ASSERT_OK_AND_ASSIGN(const NamePattern many, NamePattern::Parse(text));
  EXPECT_TRUE(many.Matches(std::string(200, 'a')));
  EXPECT_FALSE(many.Matches(std::string(199, 'a')));
  ASSERT_OK_AND_ASSIGN(const NamePattern nested,
                       NamePattern::Parse("((((a*)*)*)*)*b"));
  EXPECT_FALSE(nested.Matches(std::string(10000, 'a')));
}

TEST(NamePatternsTest, FindsTheOneThatMatches) {
  ASSERT_OK_AND_ASSIGN(
      const NamePatterns patterns,
      NamePatterns::Parse({R"(^a\.b$)", R"(\d+\.b)", R"(^a\.b$)", "c.*"}));
  EXPECT_EQ(*patterns.Find("a.b"), 0);
  EXPECT_EQ(*patterns.Find("17.b"), 1);
  EXPECT_EQ(*patterns.Find("cd"), 3);
  EXPECT_EQ(*patterns.Find("a.bc"), std::nullopt);
  EXPECT_THAT(patterns.Find("c\xc3\xa9"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("ASCII")));
  EXPECT_EQ(*NamePatterns().Find("\xc3\xa9"), std::nullopt);
}

TEST(NamePatternsTest, RefusesTwoThatMatch) {
  for (const auto& texts :
       {std::vector<std::string>{R"(^ab$)", "a"}, {"a", "ab"}}) {
    ASSERT_OK_AND_ASSIGN(const NamePatterns patterns,
                         NamePatterns::Parse(texts));
    EXPECT_THAT(patterns.Find("ab"),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("\"a\""), HasSubstr("expected one"))));
  }
}

}  // namespace
}  // namespace shardshift::reshard
