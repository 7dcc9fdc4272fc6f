// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/synth.h"

#include <set>
#include <string>

#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/checkpoint_state.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;

TEST(SynthValue, DiffersByTensorRoleAndIndex) {
  std::set<float> values;
  for (const char* tensor : {"layers.0.mlp.up.weight", "layers.1.mlp.up.weight",
                             "layers.0.mlp.gate.weight"}) {
    for (const char* role : {"master", "exp_avg"}) {
      for (int64_t index = 0; index < 50; ++index) {
        values.insert(SynthValue(tensor, role, index));
      }
    }
  }
  // 300 draws out of 2^24: two equal ones would be a rare chance, and the
  // draws are fixed.
  EXPECT_EQ(values.size(), 300);
}

TEST(SynthValue, LiesInItsRangeAndIsNeverNegativeForSquares) {
  bool negative = false;
  for (int64_t index = 0; index < 20'000; ++index) {
    const float value = SynthValue("w", "master", index);
    EXPECT_GE(value, -1.0F);
    EXPECT_LT(value, 1.0F);
    negative |= value < 0;
    EXPECT_GE(SynthValue("w", "exp_avg_sq", index), 0.0F);
  }
  EXPECT_TRUE(negative);
}

// Written down once: other programs compute these values too.
TEST(SynthValue, IsWhatItWas) {
  EXPECT_EQ(SynthValue("embedding.word.weight", "master", 0), -0x7694d6p-23F);
  EXPECT_EQ(SynthValue("layers.3.attention.q.bias", "exp_avg", 7),
            -0x4f7d6bp-23F);
  EXPECT_EQ(SynthValue("final_norm.weight", "exp_avg_sq", 1LL << 40),
            0x77bce0p-23F);
}

class WriteSynthCheckpointTest : public ::testing::Test {
 protected:
  const ckpt::TempDir directory_;
  const std::string run_dir_ = ckpt::JoinPath(directory_.path(), "a/run");
};

TEST_F(WriteSynthCheckpointTest, MakesAWholeCheckpointWithTheGivenTexts) {
  const Layout layout = {.tensor = 2, .data = 2, .distributed_optimizer = true};
  ASSERT_OK(WriteSynth(run_dir_, LlamaModel(), layout));
  ASSERT_OK_AND_ASSIGN(const auto reader, ckpt::Reader::Open(StepOf(run_dir_)));
  EXPECT_EQ(reader->step(), 3);
  EXPECT_OK(CheckTensors(*reader, LogicalTensors(LlamaModel())));
  ASSERT_OK_AND_ASSIGN(const CheckpointState state, ReadState(*reader));
  EXPECT_EQ(state.state, SampleState(LlamaModel()));
  EXPECT_EQ(state.record, SampleRecord(layout));
  EXPECT_EQ(state.model, LlamaModel());
  EXPECT_EQ(state.layout, layout);
}

TEST_F(WriteSynthCheckpointTest, RefusesADirectoryThatExists) {
  ASSERT_OK(ckpt::MakeDirectories(run_dir_));
  EXPECT_THAT(WriteSynth(run_dir_, GptModel(), {}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(run_dir_)));
  EXPECT_TRUE(Snapshot(run_dir_).empty());
}

TEST_F(WriteSynthCheckpointTest, WritesNothingForALayoutThatCannotBe) {
  EXPECT_THAT(WriteSynth(run_dir_, GptModel(), {.tensor = 3}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--tensor-model-parallel-size 3")));
  ASSERT_OK_AND_ASSIGN(const auto names,
                       ckpt::ListDirectory(directory_.path()));
  EXPECT_THAT(names, ::testing::IsEmpty());
}

}  // namespace
}  // namespace shardshift::reshard
