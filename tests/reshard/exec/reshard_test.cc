// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/reshard.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Layout kFrom = {
    .tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true};
constexpr Layout kTo = {.tensor = 4, .data = 3, .distributed_optimizer = true};

class ReshardTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  void SetUp() override {
    ASSERT_OK(WriteSynth(Path("source"), GptModel(), kFrom));
    ASSERT_OK_AND_ASSIGN(source_, ckpt::Reader::Open(StepOf(Path("source"))));
  }

  absl::StatusOr<ReshardReport> Run(const std::string& name,
                                    const Layout& layout = kTo,
                                    int64_t memory_bytes = 1 << 20) {
    return ReshardCheckpoint(*source_, Path(name), layout,
                             {.memory_bytes = memory_bytes});
  }

  const ckpt::TempDir directory_;
  std::unique_ptr<ckpt::Reader> source_;
};

TEST_F(ReshardTest, ReportsWhatItDid) {
  ASSERT_OK_AND_ASSIGN(const ReshardReport report, Run("out"));
  int64_t elements = 0;
  for (const LogicalTensor& tensor : LogicalTensors(GptModel())) {
    elements += ckpt::NumElements(tensor.shape);
  }
  EXPECT_OK(report.proof);
  EXPECT_EQ(report.step, 3);
  EXPECT_EQ(report.from, kFrom);
  EXPECT_EQ(report.to, kTo);
  EXPECT_EQ(report.tensors,
            3 * static_cast<int64_t>(LogicalTensors(GptModel()).size()));
  EXPECT_EQ(report.payload_bytes, 3 * 4 * elements);
  EXPECT_EQ(report.parts, 12);
  EXPECT_EQ(report.replaced_leftover, "");
}

TEST_F(ReshardTest, KeepsTheStateAndAllOfTheRecordButTheLayout) {
  ASSERT_OK(Run("out"));
  ASSERT_OK_AND_ASSIGN(const auto copy,
                       ckpt::Reader::Open(StepOf(Path("out"))));
  EXPECT_EQ(copy->state(), source_->state());
  ASSERT_OK_AND_ASSIGN(const CheckpointState state, ReadState(*copy));
  EXPECT_EQ(state.record, SampleRecord(kTo));
}

TEST_F(ReshardTest, GivesTheSameBytesWithAnySlab) {
  ASSERT_OK(Run("large", kTo, 16 << 20));
  for (const int64_t bytes : {16 << 10, 20 << 10, 123456}) {
    const std::string name = std::to_string(bytes);
    ASSERT_OK(Run(name, kTo, bytes));
    EXPECT_TRUE(Snapshot(Path(name)) == Snapshot(Path("large"))) << bytes;
  }
}

TEST_F(ReshardTest, ToTheLayoutOfTheSourceIsACopy) {
  ASSERT_OK(Run("out", kFrom));
  EXPECT_TRUE(Snapshot(Path("out")) == Snapshot(Path("source")));
}

TEST_F(ReshardTest, LeavesNothingBesideTheDestination) {
  ASSERT_OK(Run("out"));
  ASSERT_OK_AND_ASSIGN(const auto names,
                       ckpt::ListDirectory(directory_.path()));
  EXPECT_THAT(names, ::testing::ElementsAre("out", "source"));
  ASSERT_OK_AND_ASSIGN(const auto inside, ckpt::ListDirectory(Path("out")));
  EXPECT_THAT(inside, ::testing::ElementsAre("latest", "step-00000003"));
}

TEST_F(ReshardTest, MakesMissingDirectoriesAndTakesATrailingSlash) {
  ASSERT_OK(Run("x/y/out//"));
  EXPECT_OK(ckpt::Reader::Open(StepOf(Path("x/y/out"))));
}

TEST_F(ReshardTest, ProgressRisesToTheTotal) {
  int64_t last = 0;
  int64_t last_total = -1;
  const auto watch = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_TRUE(last_total < 0 || last_total == total);
    last = done;
    last_total = total;
  };
  ASSERT_OK_AND_ASSIGN(
      const ReshardReport report,
      ReshardCheckpoint(*source_, Path("out"), kTo,
                        {.memory_bytes = 64 << 10, .progress = watch}));
  EXPECT_EQ(last, last_total);
  EXPECT_EQ(last_total, report.payload_bytes);
}

TEST_F(ReshardTest, OrdersTwelveShardsByNumber) {
  const Layout twelve = {.data = 12, .distributed_optimizer = true};
  ASSERT_OK(Run("twelve", twelve));
  source_ = *ckpt::Reader::Open(StepOf(Path("twelve")));
  ASSERT_OK(Run("back", kFrom));
  EXPECT_TRUE(Snapshot(Path("back")) == Snapshot(Path("source")));
}

TEST_F(ReshardTest, WritesNoPartForRanksThatOwnNothing) {
  ModelConfig model = LlamaModel();
  model.num_layers = 1;
  model.hidden_size = model.ffn_hidden_size = model.kv_channels = 2;
  model.num_attention_heads = model.num_query_groups = 1;
  model.vocab_size = 5;
  model.padded_vocab_size = 128;
  ASSERT_OK(WriteSynth(Path("tiny"), model, {}));
  source_ = *ckpt::Reader::Open(StepOf(Path("tiny")));
  ASSERT_OK_AND_ASSIGN(
      const ReshardReport report,
      Run("wide", {.data = 128, .distributed_optimizer = true}));
  EXPECT_LT(report.parts, 128);
  EXPECT_OK(report.proof);
  source_ = *ckpt::Reader::Open(StepOf(Path("wide")));
  ASSERT_OK(Run("narrow", {}));
  EXPECT_TRUE(Snapshot(Path("narrow")) == Snapshot(Path("tiny")));
}

TEST_F(ReshardTest, ReplacesItsOwnLeftover) {
  ASSERT_OK(ckpt::MakeDirectories(Path("out.partial/step-00000003.partial")));
  ASSERT_OK(ckpt::ReplaceFile(Path("out.partial/shardshift-reshard"), "x"));
  ASSERT_OK(ckpt::ReplaceFile(Path("out.partial/stale"), "x"));
  ASSERT_OK_AND_ASSIGN(const ReshardReport report, Run("out"));
  EXPECT_EQ(report.replaced_leftover, Path("out.partial"));
  ASSERT_OK(Run("clean"));
  EXPECT_TRUE(Snapshot(Path("out")) == Snapshot(Path("clean")));
}

// A full disk can end a reshard before it has written its mark.
TEST_F(ReshardTest, ReplacesALeftoverThatWasNotMarkedYet) {
  ASSERT_OK(ckpt::MakeDirectories(Path("out.partial")));
  ASSERT_OK(
      ckpt::ReplaceFile(Path("out.partial/shardshift-reshard.partial"), ""));
  ASSERT_OK_AND_ASSIGN(const ReshardReport report, Run("out"));
  EXPECT_EQ(report.replaced_leftover, Path("out.partial"));
}

// An interrupt can come before the mark, or while a leftover is removed.
TEST_F(ReshardTest, RemovesWhatHasNoMarkBesideItsName) {
  const std::string staging = Path("out.partial-shardshift-reshard");
  ASSERT_OK(ckpt::MakeDirectories(ckpt::JoinPath(staging, "step-3")));
  ASSERT_OK(Run("out").status());
  EXPECT_FALSE(ckpt::Exists(staging).value());
  EXPECT_FALSE(ckpt::Exists(Path("out.partial")).value());
}

TEST_F(ReshardTest, RefusesAnEmptyDirectoryThatHasNoMark) {
  ASSERT_OK(ckpt::MakeDirectories(Path("out.partial")));
  EXPECT_THAT(Run("out"), StatusIs(absl::StatusCode::kAlreadyExists,
                                   HasSubstr(Path("out.partial"))));
  EXPECT_TRUE(ckpt::Exists(Path("out.partial")).value());
}

TEST_F(ReshardTest, RefusesWhatAnotherIsWriting) {
  const std::string partial = Path("out.partial");
  ASSERT_OK(ckpt::MakeDirectories(partial));
  ASSERT_OK_AND_ASSIGN(const ckpt::File lock,
                       ckpt::LockDirectory(partial, ckpt::Lock::kExclusive));
  ckpt::WriteFile(ckpt::JoinPath(partial, "shardshift-reshard"), "unfinished");
  EXPECT_THAT(Run("out"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("another reshard")));
  EXPECT_TRUE(ckpt::Exists(partial).value());
}

TEST_F(ReshardTest, RefusesADirectoryThatIsNotItsOwnLeftover) {
  ASSERT_OK(ckpt::MakeDirectories(Path("out.partial")));
  ASSERT_OK(ckpt::ReplaceFile(Path("out.partial/thesis"), "x"));
  EXPECT_THAT(Run("out"), StatusIs(absl::StatusCode::kAlreadyExists,
                                   HasSubstr(Path("out.partial"))));
  EXPECT_EQ(Snapshot(Path("out.partial")).size(), 1);
}

TEST_F(ReshardTest, RefusesADestinationThatExists) {
  ASSERT_OK(ckpt::MakeDirectories(Path("out")));
  EXPECT_THAT(Run("out"), StatusIs(absl::StatusCode::kAlreadyExists,
                                   HasSubstr(Path("out") + " exists")));
  EXPECT_THAT(Run("out/"), StatusIs(absl::StatusCode::kAlreadyExists,
                                    HasSubstr(Path("out") + " exists")));
  EXPECT_THAT(Run("source"), StatusIs(absl::StatusCode::kAlreadyExists,
                                      HasSubstr(Path("source"))));
  EXPECT_THAT(Snapshot(Path("out")), IsEmpty());
}

TEST_F(ReshardTest, RefusesADestinationThatCannotBeAndChangesNothing) {
  const auto before = Snapshot(directory_.path());
  const auto refused = [&](const std::string& destination,
                           absl::StatusCode code, const std::string& word) {
    EXPECT_THAT(ReshardCheckpoint(*source_, destination, kTo, {}),
                StatusIs(code, HasSubstr(word)));
    EXPECT_TRUE(Snapshot(directory_.path()) == before) << destination;
  };
  refused("/", absl::StatusCode::kAlreadyExists, "the root directory");
  refused("//", absl::StatusCode::kAlreadyExists, "the root directory");
  refused(Path("step-00000004"), absl::StatusCode::kInvalidArgument,
          "has the name of a checkpoint");
  refused(StepOf(Path("source")) + "/x", absl::StatusCode::kInvalidArgument,
          "lies inside the checkpoint");
  refused(StepOf(Path("source")) + "/../step-00000003/x/y",
          absl::StatusCode::kInvalidArgument, "lies inside the checkpoint");
}

// A directory that cannot be written in, or a part that cannot be.
TEST_F(ReshardTest, ThatCannotWriteLeavesNothing) {
  ckpt::WriteFile(Path("file"), "x");
  const auto before = Snapshot(directory_.path());
  EXPECT_FALSE(Run("file/out").ok());
  EXPECT_TRUE(Snapshot(directory_.path()) == before);
  ASSERT_OK_AND_ASSIGN(const auto names,
                       ckpt::ListDirectory(directory_.path()));
  EXPECT_THAT(names, ::testing::ElementsAre("file", "source"));
}

TEST_F(ReshardTest, WritesNothingForALayoutThatCannotBe) {
  for (const auto& [layout, word] :
       {std::pair(Layout{.tensor = 3}, "--num-attention-heads 4"),
        std::pair(Layout{.pipeline = 3}, "--num-layers 4"),
        std::pair(Layout{.data = 0}, "--data-parallel-size is 0")}) {
    EXPECT_THAT(Run("out", layout),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
  }
  ASSERT_OK_AND_ASSIGN(const auto names,
                       ckpt::ListDirectory(directory_.path()));
  EXPECT_THAT(names, ::testing::ElementsAre("source"));
}

}  // namespace
}  // namespace shardshift::reshard
