// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/numerics.h"

#include <limits>
#include <string>

#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TensorGranularity, IsTheGcdOfEightAndWhatTensorParallelismSplits) {
  const ModelConfig model = GptModel();  // ffn 24, q 16, qkv 48
  EXPECT_EQ(ChooseTensorGranularity(model, 32), 8);
  EXPECT_EQ(ChooseTensorGranularity(model, 12), 4);
  EXPECT_EQ(ChooseTensorGranularity(model, 7), 1);
  ModelConfig odd = model;
  odd.ffn_hidden_size = 6;
  EXPECT_EQ(ChooseTensorGranularity(odd, 32), 2);
  odd = model;
  odd.num_attention_heads = odd.num_query_groups = 1;  // q 4, qkv 12
  EXPECT_EQ(ChooseTensorGranularity(odd, 32), 4);
  // 2 heads, 1 group of width 2: q 4, qkv 8.
  odd.num_attention_heads = 2;
  odd.kv_channels = 2;
  EXPECT_EQ(ChooseTensorGranularity(odd, 32), 4);
}

TEST(DataGranularity, IsTheLargestDivisorOfTheBatchWithinItsBound) {
  EXPECT_EQ(ChooseDataGranularity(8, 1), 8);
  EXPECT_EQ(ChooseDataGranularity(64, 1), 16);
  EXPECT_EQ(ChooseDataGranularity(64, 32), 32);
  EXPECT_EQ(ChooseDataGranularity(60, 1), 15);
  EXPECT_EQ(ChooseDataGranularity(34, 1), 2);
  EXPECT_EQ(ChooseDataGranularity(37, 1), 1);
  EXPECT_EQ(ChooseDataGranularity(1, 1), 1);
}

TEST(PaddedVocabSize, IsMegatronsWhereRanksDecide) {
  struct Case {
    int64_t vocab, multiple, ranks, padded;
  };
  for (const Case& c :
       {Case{50257, 128, 1, 50304}, Case{50257, 128, 2, 50432},
        Case{50257, 128, 8, 51200}, Case{32000, 128, 4, 32256},
        Case{32000, 128, 8, 32768}, Case{151936, 128, 8, 152576},
        Case{256, 128, 2, 256}, Case{251, 1, 1, 251}}) {
    ASSERT_OK_AND_ASSIGN(
        const int64_t padded,
        ChoosePaddedVocabSize(c.vocab, c.multiple, /*tensor_granularity=*/1,
                              c.ranks));
    EXPECT_EQ(padded, c.padded) << c.vocab << " over " << c.ranks;
  }
}

TEST(PaddedVocabSize, DoesNotDependOnRanksUpToTheGranularity) {
  for (const int64_t ranks : {1, 2, 4, 8}) {
    ASSERT_OK_AND_ASSIGN(const int64_t padded,
                         ChoosePaddedVocabSize(50257, 128, 8, ranks));
    EXPECT_EQ(padded, 51200);
  }
  ASSERT_OK_AND_ASSIGN(const int64_t padded,
                       ChoosePaddedVocabSize(50257, 128, 8, 16));
  EXPECT_EQ(padded, 51200);
}

TEST(PaddedVocabSize, RefusesMultiplesOutOfRange) {
  for (const int64_t bad :
       {int64_t{0}, int64_t{-128}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(ChoosePaddedVocabSize(50257, bad, 8, 1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("--make-vocab-size-divisible-by is ")));
  }
}

TEST(CheckLayoutFits, TakesWhatDividesTheConstants) {
  const NumericsConstants numerics = {.tensor_granularity = 4,
                                      .data_granularity = 6};
  for (const int64_t tensor : {1, 2, 4}) {
    for (const int64_t data : {1, 2, 3, 6}) {
      EXPECT_OK(CheckLayoutFits(numerics, {.tensor = tensor, .data = data}));
    }
  }
  EXPECT_OK(CheckLayoutFits(numerics, {.pipeline = 7}));
}

TEST(CheckLayoutFits, NamesFlagAndConstantOtherwise) {
  const NumericsConstants numerics = {.tensor_granularity = 4,
                                      .data_granularity = 6};
  for (const int64_t tensor : {3, 8}) {
    EXPECT_THAT(CheckLayoutFits(numerics, {.tensor = tensor}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--tensor-model-parallel-size"),
                               HasSubstr("tensor granularity 4"))));
  }
  for (const int64_t data : {4, 5, 12}) {
    EXPECT_THAT(CheckLayoutFits(numerics, {.data = data}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--data-parallel-size"),
                               HasSubstr("data granularity 6"))));
  }
}

TEST(ValidateNumerics, NamesWhatAConstantDoesNotDivide) {
  const ModelConfig model = GptModel();
  EXPECT_OK(Validate({8, 4}, model, 32, 12));
  const auto refused = [&](const NumericsConstants& numerics,
                           const ModelConfig& of, const std::string& word) {
    EXPECT_THAT(Validate(numerics, of, 32, 12),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
  };
  refused({0, 4}, model, "--tensor-granularity is 0");
  refused({3, 4}, model, "--tensor-granularity is 3");
  refused({64, 4}, model, "--seq-length 32");
  refused({16, 4}, model, "--ffn-hidden-size 24");
  refused({8, 5}, model, "--global-batch-size 12");
  refused({8, 0}, model, "--data-granularity 0");
  ModelConfig odd = model;
  odd.padded_vocab_size = 252;
  refused({8, 4}, odd, "the padded vocabulary 252");
  odd = model;
  odd.num_attention_heads = odd.num_query_groups = 1;
  refused({8, 4}, odd, "the attention width 4");
  odd.kv_channels = 8;
  EXPECT_OK(Validate({8, 4}, odd, 32, 12));
}

TEST(NumericsJson, RoundTripsAndRefusesWhatIsNoPositiveInteger) {
  const NumericsConstants numerics = {4, 6};
  ASSERT_OK_AND_ASSIGN(const NumericsConstants read,
                       NumericsFromJson(ToJson(numerics)));
  EXPECT_EQ(read, numerics);
  EXPECT_EQ(NumericsFromJson(nlohmann::json()).status().code(),
            absl::StatusCode::kDataLoss);
  for (const char* key : {"tensor_granularity", "data_granularity"}) {
    for (const nlohmann::json& bad : {nlohmann::json(0), nlohmann::json(1.5),
                                      nlohmann::json("4"), nlohmann::json()}) {
      nlohmann::json json = ToJson(numerics);
      json[key] = bad;
      EXPECT_THAT(NumericsFromJson(json),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr(key)));
    }
  }
}

}  // namespace
}  // namespace shardshift::reshard
