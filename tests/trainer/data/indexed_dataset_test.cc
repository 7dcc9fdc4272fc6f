// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/indexed_dataset.h"

#include <gmock/gmock.h>

#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/data/test_files.h"

namespace shardshift::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Three documents of one sequence, as Megatron's writer stores them.
const std::vector<std::vector<int32_t>> kDocuments = {
    {10, 11, 12}, {20, 21}, {30, 31, 32, 33}};
constexpr char kIndexHex[] =
    "4d4d49444944580000"
    "0100000000000000"
    "08"
    "0300000000000000"
    "0400000000000000"
    "030000000200000004000000"
    "000000000000000006000000000000000a00000000000000"
    "0000000000000000010000000000000002000000000000000300000000000000";
constexpr char kTokensHex[] = "0a000b000c00140015001e001f0020002100";

class IndexedDatasetTest : public DirectoryTest {
 protected:
  IndexedDatasetTest() { WriteText("x.bin", tokens_); }

  absl::StatusOr<IndexedDataset> OpenFiles(const std::string& index,
                                           const std::string& tokens) {
    WriteText("p.idx", index);
    WriteText("p.bin", tokens);
    return IndexedDataset::Open(Path("p"));
  }

  // `index` before the tokens of the worked example.
  absl::StatusOr<IndexedDataset> OpenIndex(const std::string& index) {
    WriteText("x.idx", index);
    return IndexedDataset::Open(Path("x"));
  }

  // The worked example with `value` in place of the bytes at `offset`.
  template <typename T>
  std::string Patched(size_t offset, T value) const {
    std::string index = index_;
    std::memcpy(index.data() + offset, &value, sizeof(value));
    return index;
  }

  const std::string index_ = absl::HexStringToBytes(kIndexHex);
  const std::string tokens_ = absl::HexStringToBytes(kTokensHex);
};

TEST_F(IndexedDatasetTest, WriterGivesTheBytesOfTheWorkedExample) {
  WriteDataset("p", kDocuments);
  EXPECT_EQ(ReadText("p.idx"), index_);
  EXPECT_EQ(ReadText("p.bin"), tokens_);
  EXPECT_THAT(FileNames(), UnorderedElementsAre("p.idx", "p.bin", "x.bin"));
}

TEST_F(IndexedDatasetTest, ReadsTheWorkedExample) {
  ASSERT_OK_AND_ASSIGN(const auto dataset, OpenIndex(index_));
  EXPECT_EQ(dataset.token_type(), TokenType::kU16);
  EXPECT_EQ(dataset.num_tokens(), 9);
  EXPECT_EQ(dataset.num_sequences(), 3);
  EXPECT_EQ(dataset.num_documents(), 3);
  std::vector<int32_t> tokens(5);
  ASSERT_OK(dataset.ReadTokens(2, 100, tokens));
  EXPECT_THAT(tokens, ElementsAre(12, 20, 21, 30, 31));
}

TEST_F(IndexedDatasetTest, DocumentsMayHoldNoOrManySequences) {
  ASSERT_OK_AND_ASSIGN(const auto writer, IndexedDatasetWriter::Create(
                                              Path("p"), TokenType::kI32));
  ASSERT_OK(writer->EndDocument());
  ASSERT_OK(writer->AddSequence(std::vector<int32_t>{1, 70000}));
  ASSERT_OK(writer->AddSequence({}));
  ASSERT_OK(writer->EndDocument());
  ASSERT_OK(writer->Finish());
  ASSERT_OK_AND_ASSIGN(const auto dataset, IndexedDataset::Open(Path("p")));
  EXPECT_EQ(dataset.num_documents(), 2);
  EXPECT_EQ(dataset.num_sequences(), 2);
  std::vector<int32_t> tokens(2);
  ASSERT_OK(dataset.ReadTokens(0, 70001, tokens));
  EXPECT_THAT(tokens, ElementsAre(1, 70000));
}

TEST_F(IndexedDatasetTest, EveryTokenTypeIsRead) {
  for (const TokenType type :
       {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kI32,
        TokenType::kI64, TokenType::kU16}) {
    const std::string prefix = WriteDataset(
        absl::StrCat("type", static_cast<int>(type)), {{5, 127, 0}}, type);
    ASSERT_OK_AND_ASSIGN(const auto dataset, IndexedDataset::Open(prefix));
    std::vector<int32_t> tokens(3);
    ASSERT_OK(dataset.ReadTokens(0, 128, tokens));
    EXPECT_THAT(tokens, ElementsAre(5, 127, 0));
  }
}

TEST_F(IndexedDatasetTest, TokensOutsideTheVocabularyAreLocated) {
  ASSERT_OK_AND_ASSIGN(const auto dataset, OpenIndex(index_));
  std::vector<int32_t> tokens(9);
  EXPECT_THAT(dataset.ReadTokens(0, 32, tokens),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("x.bin"), HasSubstr("position 7"),
                             HasSubstr("byte 14"), HasSubstr("of 32"))));
  const std::string negative = WriteDataset("n", {{1, -2}}, TokenType::kI16);
  ASSERT_OK_AND_ASSIGN(const auto signed_dataset,
                       IndexedDataset::Open(negative));
  EXPECT_THAT(signed_dataset.ReadTokens(1, 32, std::span(tokens).first(1)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("position 1")));
}

TEST_F(IndexedDatasetTest, EveryTruncationIsRefused) {
  for (size_t size = 0; size < index_.size(); ++size) {
    EXPECT_THAT(OpenIndex(index_.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("x.idx")))
        << size;
  }
  for (size_t size = 0; size < tokens_.size(); ++size) {
    EXPECT_THAT(OpenFiles(index_, tokens_.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("p.bin")))
        << size;
  }
}

TEST_F(IndexedDatasetTest, EveryFlippedBitOfTheIndexIsRefused) {
  // The starts of documents 1 and 2 may be anything in order.
  constexpr size_t kFreeBegin = 78;
  constexpr size_t kFreeEnd = 94;
  for (size_t bit = 0; bit < 8 * index_.size(); ++bit) {
    if (kFreeBegin <= bit / 8 && bit / 8 < kFreeEnd) continue;
    std::string index = index_;
    index[bit / 8] = static_cast<char>(index[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(OpenIndex(index).ok()) << "bit " << bit;
  }
}

TEST_F(IndexedDatasetTest, HostileCountsAreRefusedWithoutAllocation) {
  for (const uint64_t count :
       {uint64_t{4}, uint64_t{1} << 32, uint64_t{1} << 61, ~uint64_t{0}}) {
    EXPECT_THAT(OpenIndex(Patched(18, count)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("too few")));
    EXPECT_FALSE(OpenIndex(Patched(26, count + 1)).ok());
  }
}

TEST_F(IndexedDatasetTest, NamesWhatIsWrong) {
  EXPECT_THAT(OpenIndex(Patched(9, uint64_t{2})),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("version 2, expected 1")));
  EXPECT_THAT(OpenIndex(Patched(17, uint8_t{6})),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("type 6")));
  EXPECT_THAT(OpenIndex(index_ + "abc"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("modes")));
  EXPECT_THAT(OpenIndex(index_ + "ab"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("2 bytes")));
  EXPECT_THAT(OpenIndex(Patched(34, int32_t{-3})),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("sequence 0 has length -3")));
  EXPECT_THAT(OpenIndex(Patched(54, int64_t{8})),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("sequence 1 lies at byte 8"),
                             HasSubstr("expected 6"))));
  EXPECT_THAT(OpenIndex(Patched(78, int64_t{3})),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("document 2 starts at sequence 2")));
  EXPECT_THAT(OpenFiles(index_, tokens_ + "xx"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("has 20 bytes, its index needs 18")));
}

TEST_F(IndexedDatasetTest, AMissingFileIsNotFound) {
  EXPECT_THAT(IndexedDataset::Open(Path("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.idx")));
}

TEST_F(IndexedDatasetTest, DigestsSeeEveryByteOfASmallDataset) {
  ASSERT_OK_AND_ASSIGN(const auto dataset, OpenIndex(index_));
  ASSERT_OK_AND_ASSIGN(const std::string index_digest, dataset.IndexDigest());
  ASSERT_OK_AND_ASSIGN(const std::string tokens_digest, dataset.TokensDigest());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    std::string tokens = tokens_;
    tokens[i] = static_cast<char>(tokens[i] + 1);
    ASSERT_OK_AND_ASSIGN(const auto other, OpenFiles(index_, tokens));
    EXPECT_NE(*other.TokensDigest(), tokens_digest) << i;
    EXPECT_EQ(*other.IndexDigest(), index_digest);
  }
  ASSERT_OK_AND_ASSIGN(const auto other, OpenIndex(Patched(78, int64_t{2})));
  EXPECT_NE(*other.IndexDigest(), index_digest);
}

TEST_F(IndexedDatasetTest, DigestsOfLargeFilesSeeBothEnds) {
  const std::vector<int32_t> document(3'000'000, 7);
  const std::string prefix = WriteDataset("large", {document});
  ASSERT_OK_AND_ASSIGN(const auto dataset, IndexedDataset::Open(prefix));
  ASSERT_OK_AND_ASSIGN(const std::string digest, dataset.TokensDigest());
  const std::string tokens = ReadText("large.bin");
  for (const size_t place : {size_t{0}, tokens.size() - 1}) {
    std::string changed = tokens;
    changed[place] = 1;
    WriteText("large.bin", changed);
    ASSERT_OK_AND_ASSIGN(const auto other, IndexedDataset::Open(prefix));
    EXPECT_NE(*other.TokensDigest(), digest);
  }
}

TEST_F(IndexedDatasetTest, AnAbandonedWriterLeavesNothing) {
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, IndexedDatasetWriter::Create(
                                                Path("p"), TokenType::kU16));
    ASSERT_OK(writer->AddSequence(std::vector<int32_t>(1 << 20, 3)));
  }
  EXPECT_THAT(FileNames(), ElementsAre("x.bin"));
}

TEST_F(IndexedDatasetTest, AWriterRefusesToReplace) {
  for (const char* suffix : {".bin", ".idx"}) {
    const std::string prefix = absl::StrCat("p", suffix);
    WriteText(prefix + suffix, "precious");
    EXPECT_THAT(
        IndexedDatasetWriter::Create(Path(prefix), TokenType::kU16).status(),
        StatusIs(absl::StatusCode::kAlreadyExists,
                 HasSubstr(prefix + suffix + " exists")));
    EXPECT_EQ(ReadText(prefix + suffix), "precious");
  }
}

}  // namespace
}  // namespace shardshift::trainer
