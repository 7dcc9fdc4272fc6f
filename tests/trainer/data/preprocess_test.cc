// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/preprocess.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/testutil/status_matchers.h"
#include "tests/trainer/data/test_files.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/text_documents.h"

namespace shardshift::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class PreprocessTest : public DirectoryTest {
 protected:
  absl::StatusOr<PreprocessReport> Run(PreprocessOptions options) {
    options.output_prefix = Path("out");
    return Preprocess(options, [](int64_t) {});
  }

  std::vector<std::string> Documents(
      absl::StatusOr<std::unique_ptr<DocumentReader>> reader) {
    EXPECT_OK(reader);
    std::vector<std::string> documents;
    for (std::string text;;) {
      const absl::StatusOr<bool> more = (*reader)->Next(text);
      EXPECT_OK(more);
      if (!more.ok() || !*more) return documents;
      documents.push_back(text);
    }
  }

  std::vector<int32_t> TokensOf(const std::string& prefix) {
    const auto dataset = IndexedDataset::Open(prefix);
    EXPECT_OK(dataset);
    std::vector<int32_t> tokens(dataset->num_tokens());
    EXPECT_OK(dataset->ReadTokens(0, 257, tokens));
    return tokens;
  }
};

TEST_F(PreprocessTest, BlankLinesSeparateDocuments) {
  EXPECT_THAT(Documents(OpenBlankLineSeparated(
                  WriteText("a", "\n\none\n two\n \t\n\nthree\r\n\r\n\nfour"))),
              ElementsAre("one\n two", "three\r", "four"));
  EXPECT_THAT(Documents(OpenBlankLineSeparated(WriteText("b", "\n \n"))),
              ElementsAre());
  EXPECT_THAT(Documents(OpenBlankLineSeparated(WriteText("c", "x\n"))),
              ElementsAre("x"));
}

TEST_F(PreprocessTest, LinesMayCrossTheReadBuffer) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 40; ++i) {
    expected.push_back(std::string(65537 + i, static_cast<char>('a' + i % 26)));
    text += expected.back() + "\n\n";
  }
  EXPECT_EQ(Documents(OpenBlankLineSeparated(WriteText("a", text))), expected);
}

TEST_F(PreprocessTest, JsonLinesGiveTheDecodedText) {
  EXPECT_THAT(Documents(OpenJsonLines(
                  WriteText("a",
                            "{\"text\":\"a\\n\\u00e9\",\"id\":1}\r\n"
                            "\n{\"id\":2,\"text\":\"\"}\n{\"text\":\"b\"}"),
                  "text")),
              ElementsAre("a\n\xc3\xa9", "", "b"));
}

TEST_F(PreprocessTest, JsonErrorsNameFileAndLine) {
  const auto error_of = [&](const std::string& text) {
    auto reader = OpenJsonLines(WriteText("bad.jsonl", text), "body");
    std::string document;
    absl::StatusOr<bool> more = true;
    while (more.ok() && *more) more = (*reader)->Next(document);
    return more.status();
  };
  const std::string good = "{\"body\": \"x\"}\n";
  for (const char* bad : {"plain text", "[1]", "{\"body\": \"\xff\"}",
                          "{\"body\": \"x\"", "{\"body\": \"x\"} y"}) {
    EXPECT_THAT(error_of(good + bad + "\n"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("bad.jsonl, line 2"),
                               HasSubstr("--split-on"))))
        << bad;
  }
  for (const char* bad : {"{\"text\": \"x\"}", "{\"body\": 3}"}) {
    EXPECT_THAT(error_of(good + good + bad),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("line 3"), HasSubstr("\"body\""))))
        << bad;
  }
}

TEST_F(PreprocessTest, EveryByteIsItsOwnToken) {
  std::string text;
  for (int c = 1; c < 256; ++c) {
    if (c != '\n') text += static_cast<char>(c);
  }
  ASSERT_OK_AND_ASSIGN(
      const PreprocessReport report,
      Run({.inputs = {WriteText("a", text)}, .blank_lines = true}));
  EXPECT_EQ(report.documents, 1);
  EXPECT_EQ(report.tokens, 254);
  EXPECT_EQ(report.vocab_size, 256);
  std::vector<int32_t> expected;
  for (int c = 1; c < 256; ++c) {
    if (c != '\n') expected.push_back(c);
  }
  EXPECT_EQ(TokensOf(Path("out")), expected);
  EXPECT_THAT(FileNames(), UnorderedElementsAre("a", "out.bin", "out.idx"));
}

TEST_F(PreprocessTest, EmptyDocumentsHaveNoSequenceAndNoEnd) {
  ASSERT_OK_AND_ASSIGN(
      const PreprocessReport report,
      Run({.inputs = {WriteText("a", "{\"t\":\"A\"}\n{\"t\":\"\"}\n"),
                      WriteText("b", "{\"t\":\"BC\"}\n")},
           .json_key = "t",
           .append_eod = true}));
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.vocab_size, 257);
  EXPECT_THAT(TokensOf(Path("out")), ElementsAre('A', 256, 'B', 'C', 256));
  ASSERT_OK_AND_ASSIGN(const auto dataset, IndexedDataset::Open(Path("out")));
  EXPECT_EQ(dataset.num_documents(), 3);
  EXPECT_EQ(dataset.num_sequences(), 2);
}

TEST_F(PreprocessTest, AFailureLeavesNothing) {
  EXPECT_THAT(
      Run({.inputs = {WriteText("a", "{\"text\":\"A\"}\noops")}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2")));
  EXPECT_THAT(Run({.inputs = {Path("none")}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(
      Run({.inputs = {WriteText("b", "\n")}, .blank_lines = true}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no text")));
  EXPECT_THAT(FileNames(), UnorderedElementsAre("a", "b"));
}

TEST_F(PreprocessTest, RefusesToReplaceADataset) {
  WriteText("out.idx", "precious");
  EXPECT_THAT(Run({.inputs = {WriteText("a", "x")}, .blank_lines = true}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("out.idx")));
  EXPECT_EQ(ReadText("out.idx"), "precious");
}

TEST_F(PreprocessTest, ReportsProgressOfLargeInputs) {
  std::vector<int64_t> reported;
  std::string text;
  for (int i = 0; i < 10; ++i) {
    text.append(1 << 20, 'x');
    text.append("\n\n");
  }
  ASSERT_OK(Preprocess({.inputs = {WriteText("a", text)},
                        .output_prefix = Path("out"),
                        .blank_lines = true},
                       [&](int64_t bytes) { reported.push_back(bytes); }));
  EXPECT_EQ(reported.size(), 2);
  EXPECT_GE(reported.front(), 4 << 20);
  EXPECT_LT(reported.back(), std::ssize(text));
}

}  // namespace
}  // namespace shardshift::trainer
