// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_source.h"

#include <gmock/gmock.h>

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/data/test_files.h"
#include "trainer/data/data_identity.h"

namespace shardshift::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> SampleOf(const TokenSource& source, int64_t index) {
  std::vector<int32_t> tokens(source.seq_length() + 1);
  EXPECT_OK(source.Sample(index, tokens));
  return tokens;
}

class TokenSourceTest : public DirectoryTest {};

TEST_F(TokenSourceTest, SamplesCrossDocumentsAndFiles) {
  const std::string a = WriteDataset("a", {{0, 1, 2}, {3}});
  const std::string b = WriteDataset("b", {});
  const std::string c = WriteDataset("c", {{4}, {5, 6, 7, 8, 9, 10}});
  ASSERT_OK_AND_ASSIGN(const auto source,
                       OpenIndexedTokenSource({a, b, c}, 3, 11));
  EXPECT_EQ(source->num_samples(), 3);
  EXPECT_THAT(SampleOf(*source, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SampleOf(*source, 1), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(SampleOf(*source, 2), ElementsAre(6, 7, 8, 9));
}

TEST_F(TokenSourceTest, EverySampleOfEveryCutIsARunOfTheConcatenation) {
  std::vector<int32_t> all(60);
  std::iota(all.begin(), all.end(), 100);
  for (int64_t cut = 0; cut <= std::ssize(all); cut += 7) {
    const std::string a = WriteDataset(absl::StrCat("a", cut),
                                       {{all.begin(), all.begin() + cut}});
    const std::string b =
        WriteDataset(absl::StrCat("b", cut), {{all.begin() + cut, all.end()}});
    for (int64_t seq_length : {1, 2, 7, 59}) {
      ASSERT_OK_AND_ASSIGN(const auto source,
                           OpenIndexedTokenSource({a, b}, seq_length, 200));
      ASSERT_EQ(source->num_samples(), 59 / seq_length);
      for (int64_t i = 0; i < source->num_samples(); ++i) {
        const auto begin = all.begin() + i * seq_length;
        EXPECT_EQ(SampleOf(*source, i),
                  std::vector<int32_t>(begin, begin + seq_length + 1));
      }
    }
  }
}

TEST_F(TokenSourceTest, RefusesASampleBeyondTheEnd) {
  const std::string a = WriteDataset("a", {{0, 1, 2, 3, 4}});
  ASSERT_OK_AND_ASSIGN(const auto source, OpenIndexedTokenSource({a}, 2, 5));
  std::vector<int32_t> tokens(3);
  EXPECT_THAT(source->Sample(2, tokens),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("sample 2 of a data set of 2")));
  EXPECT_THAT(source->Sample(-1, tokens),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("-1")));
}

TEST_F(TokenSourceTest, RefusesDataTooShortForASample) {
  const std::string a = WriteDataset("a", {{0, 1, 2}});
  EXPECT_THAT(OpenIndexedTokenSource({a}, 3, 5).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("3 tokens"), HasSubstr("needs 4"))));
  EXPECT_THAT(
      OpenIndexedTokenSource({WriteDataset("e", {})}, 3, 5).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 tokens")));
}

TEST_F(TokenSourceTest, RefusesATokenOutsideTheVocabulary) {
  const std::string a = WriteDataset("a", {{0, 1, 2, 3, 4}});
  ASSERT_OK_AND_ASSIGN(const auto source, OpenIndexedTokenSource({a}, 2, 4));
  std::vector<int32_t> tokens(3);
  EXPECT_OK(source->Sample(0, tokens));
  EXPECT_THAT(source->Sample(1, tokens),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("a.bin"), HasSubstr("position 4"))));
}

TEST(MockTokenSource, IsAFunctionOfSeedSampleAndPosition) {
  const auto source = MakeMockTokenSource(1, 16, 1000);
  const auto longer = MakeMockTokenSource(1, 40, 1000);
  const auto other_seed = MakeMockTokenSource(2, 16, 1000);
  EXPECT_EQ(source->num_samples(), kUnlimitedSamples);
  EXPECT_EQ(SampleOf(*source, 5), SampleOf(*source, 5));
  EXPECT_NE(SampleOf(*source, 5), SampleOf(*source, 6));
  EXPECT_NE(SampleOf(*source, 5), SampleOf(*other_seed, 5));
  const std::vector<int32_t> tokens = SampleOf(*longer, 5);
  EXPECT_EQ(SampleOf(*source, 5),
            std::vector<int32_t>(tokens.begin(), tokens.begin() + 17));
}

TEST(MockTokenSource, KeepsItsTokensForEver) {
  const auto source = MakeMockTokenSource(1234, 9, 256);
  EXPECT_THAT(SampleOf(*source, 0),
              ElementsAre(169, 255, 8, 94, 0, 86, 0, 13, 136, 222));
  EXPECT_THAT(SampleOf(*source, int64_t{1} << 40),
              ElementsAre(5, 211, 1, 87, 2, 88, 1, 87, 4, 90));
}

TEST(MockTokenSource, StaysWithinAnyVocabulary) {
  for (const int64_t vocab_size : {2, 3, 4, 7, 255, 256, 257, 50257}) {
    const auto source = MakeMockTokenSource(3, 999, vocab_size);
    EXPECT_THAT(SampleOf(*source, 0),
                Each(AllOf(testing::Ge(0), testing::Lt(vocab_size))));
  }
}

TEST(MockTokenSource, PrefersLowIdsAndRepeatsPairs) {
  constexpr int64_t kVocab = 300;
  const auto source = MakeMockTokenSource(3, 9999, kVocab);
  const std::vector<int32_t> tokens = SampleOf(*source, 0);
  int low = 0;
  int high = 0;
  int followers = 0;
  for (int64_t i = 0; i < std::ssize(tokens); i += 2) {
    if (tokens[i] < 15) ++low;
    if (tokens[i] >= kVocab - 15) ++high;
    if (tokens[i + 1] == (tokens[i] + 1 + kVocab / 3) % kVocab) ++followers;
  }
  EXPECT_NEAR(low, 5000 / 2, 200);  // four octaves of eight
  EXPECT_LT(high, 100);
  EXPECT_NEAR(followers, 5000 * 3 / 4, 200);
}

class DataIdentityTest : public DirectoryTest {};

TEST_F(DataIdentityTest, DoesNotDependOnWhereTheFilesLie) {
  const std::string a = WriteDataset("a", {{1, 2, 3}});
  const std::string b = WriteDataset("b", {{1, 2, 3}});
  ASSERT_OK_AND_ASSIGN(const auto source, OpenIndexedTokenSource({a}, 2, 9));
  ASSERT_OK_AND_ASSIGN(const auto moved, OpenIndexedTokenSource({b}, 2, 9));
  EXPECT_OK(CheckSameData(DataIdentity(*source, DataOrder::kShuffled, 1),
                          DataIdentity(*moved, DataOrder::kShuffled, 1)));
}

TEST_F(DataIdentityTest, NamesEveryDifference) {
  const std::string a = WriteDataset("a", {{1, 2, 3}});
  const std::string same_size = WriteDataset("b", {{1, 2, 4}});
  const std::string cut = WriteDataset("c", {{1, 2}, {3}});
  const auto identity = [](std::vector<std::string> prefixes,
                           int64_t seq_length, DataOrder order, uint64_t seed) {
    auto source = OpenIndexedTokenSource(prefixes, seq_length, 9);
    EXPECT_OK(source);
    return DataIdentity(**source, order, seed);
  };
  const auto stored = identity({a}, 2, DataOrder::kShuffled, 1);
  const auto expect_refusal = [&](const nlohmann::json& current,
                                  const std::string& what) {
    EXPECT_THAT(
        CheckSameData(stored, current),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(what)));
  };
  expect_refusal(identity({same_size}, 2, DataOrder::kShuffled, 1),
                 "source/files/0/tokens_digest: the checkpoint has \"");
  expect_refusal(identity({cut}, 2, DataOrder::kShuffled, 1),
                 "source/files/0/index_digest");
  expect_refusal(identity({a, a}, 2, DataOrder::kShuffled, 1),
                 "source/files/1/tokens: the checkpoint has nothing, this run "
                 "3");
  expect_refusal(identity({a}, 1, DataOrder::kShuffled, 1),
                 "seq_length: the checkpoint has 2, this run 1");
  expect_refusal(identity({a}, 2, DataOrder::kShuffled, 7),
                 "seed: the checkpoint has 1, this run 7");
  expect_refusal(identity({a}, 2, DataOrder::kSequential, 1),
                 "order: the checkpoint has \"shuffled\", this run "
                 "\"sequential\"");
}

}  // namespace
}  // namespace shardshift::trainer
