// Parts that the source has already are not copied.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/part_links.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"
#include "ckpt/reader.h"
#include "reshard/exec/reshard.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

constexpr Layout kLayout = {.tensor = 2, .data = 2};

class PartLinksTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  void SetUp() override {
    ASSERT_OK(WriteSynth(Path("source"), GptModel(), kLayout));
  }

  absl::StatusOr<ReshardReport> Run(const std::string& from,
                                    const std::string& to,
                                    const ReshardOptions& options,
                                    const Layout& layout = kLayout) {
    SS_ASSIGN_OR_RETURN(const auto source,
                        ckpt::Reader::Open(StepOf(Path(from))));
    return ReshardCheckpoint(*source, Path(to), layout, options);
  }

  std::string PartPath(const std::string& run, int64_t part) const {
    return ckpt::JoinPath(StepOf(Path(run)), ckpt::PartFileName(part));
  }

  const ckpt::TempDir directory_;
};

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat of_a = {};
  struct stat of_b = {};
  EXPECT_EQ(stat(a.c_str(), &of_a), 0) << a;
  EXPECT_EQ(stat(b.c_str(), &of_b), 0) << b;
  return of_a.st_ino == of_b.st_ino;
}

TEST_F(PartLinksTest, TheLayoutOfTheSourceTakesItsFiles) {
  ASSERT_OK_AND_ASSIGN(const ReshardReport report, Run("source", "out", {}));
  EXPECT_OK(report.proof);
  EXPECT_EQ(report.linked_parts, 4);
  EXPECT_TRUE(IsSameFile(PartPath("source", 3), PartPath("out", 3)));
  EXPECT_TRUE(Snapshot(Path("out")) == Snapshot(Path("source")));
  ASSERT_OK(ckpt::RemoveTree(Path("source")));
  EXPECT_OK(ckpt::Reader::Open(StepOf(Path("out"))));
}

// The last two stages stay what they are when the first two become one, but
// other ranks write them.
TEST_F(PartLinksTest, PartsKeepTheirBytesUnderAnotherNumber) {
  const Layout even = {.pipeline = 4};
  const Layout uneven = {.pipeline = 3, .first_stage_layers = 2};
  ASSERT_OK(WriteSynth(Path("even"), LlamaModel(), even));
  ASSERT_OK_AND_ASSIGN(const ReshardReport report,
                       Run("even", "uneven", {}, uneven));
  EXPECT_OK(report.proof);
  EXPECT_EQ(report.linked_parts, 2);
  EXPECT_TRUE(IsSameFile(PartPath("even", 2), PartPath("uneven", 1)));
  ASSERT_OK(WriteSynth(Path("direct"), LlamaModel(), uneven));
  EXPECT_TRUE(Snapshot(Path("uneven")) == Snapshot(Path("direct")));
}

TEST_F(PartLinksTest, WhatIsStoredInAnotherWayIsCopied) {
  const ReshardOptions zstd = {.codec = ckpt::Codec::kShuffleZstd};
  ASSERT_OK_AND_ASSIGN(const ReshardReport packed,
                       Run("source", "packed", zstd));
  EXPECT_EQ(packed.linked_parts, 0);
  ASSERT_OK_AND_ASSIGN(const ReshardReport same, Run("packed", "same", zstd));
  EXPECT_EQ(same.linked_parts, 4);
  ASSERT_OK_AND_ASSIGN(const ReshardReport plain, Run("packed", "plain", {}));
  EXPECT_EQ(plain.linked_parts, 0);
  EXPECT_TRUE(Snapshot(Path("plain")) == Snapshot(Path("source")));
  ASSERT_OK_AND_ASSIGN(
      const ReshardReport weights,
      Run("source", "weights", {.choice = {.weights_only = true}}));
  EXPECT_EQ(weights.linked_parts, 0);
  EXPECT_OK(weights.proof);
}

TEST_F(PartLinksTest, AFileBehindASymbolicLinkIsTakenItself) {
  const std::string elsewhere = Path("elsewhere.h5");
  ASSERT_EQ(rename(PartPath("source", 1).c_str(), elsewhere.c_str()), 0);
  ASSERT_EQ(symlink("../../elsewhere.h5", PartPath("source", 1).c_str()), 0);
  ASSERT_OK_AND_ASSIGN(const ReshardReport report,
                       Run("source", "a/b/out", {}));
  EXPECT_EQ(report.linked_parts, 4);
  ASSERT_OK(ckpt::RemoveTree(elsewhere));
  EXPECT_OK(ckpt::Reader::Open(StepOf(Path("a/b/out"))));
}

class NoLinks final : public ckpt::SystemCalls {
  int Link(const std::string&, const std::string&) override {
    errno = EXDEV;
    return -1;
  }
};

TEST_F(PartLinksTest, AnotherFileSystemGetsCopies) {
  NoLinks calls;
  const ckpt::ScopedSystemCalls scoped(calls);
  ASSERT_OK_AND_ASSIGN(const ReshardReport report, Run("source", "out", {}));
  EXPECT_OK(report.proof);
  EXPECT_EQ(report.linked_parts, 0);
  EXPECT_TRUE(Snapshot(Path("out")) == Snapshot(Path("source")));
}

TEST_F(PartLinksTest, AFileWithDamagedMetadataIsNotTaken) {
  ASSERT_OK_AND_ASSIGN(const auto source,
                       ckpt::Reader::Open(StepOf(Path("source"))));
  std::string bytes = ckpt::ReadFile(PartPath("source", 1));
  bytes.back() ^= 1;
  ckpt::WriteFile(PartPath("source", 1), bytes);
  EXPECT_THAT(ReshardCheckpoint(*source, Path("out"), kLayout, {}).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       ::testing::HasSubstr(ckpt::PartFileName(1))));
  EXPECT_FALSE(*ckpt::Exists(Path("out")));
}

}  // namespace
}  // namespace shardshift::reshard
