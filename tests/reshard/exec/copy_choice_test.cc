// Copies of some of a checkpoint: weights alone, other dtypes, some tensors.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/reshard.h"
#include "reshard/exec/synth.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ckpt::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CopyChoiceTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  absl::StatusOr<ReshardReport> Run(const std::string& from,
                                    const std::string& to, const Layout& layout,
                                    const CopyChoice& choice) {
    SS_ASSIGN_OR_RETURN(const auto source,
                        ckpt::Reader::Open(StepOf(Path(from))));
    return ReshardCheckpoint(*source, Path(to), layout,
                             {.choice = choice, .memory_bytes = 256 << 10});
  }

  const ckpt::TempDir directory_;
};

// The master weights of WriteSynth, rounded.
std::vector<std::byte> Weights(const LogicalTensor& tensor, DType dtype) {
  const int64_t num_elements = ckpt::NumElements(tensor.shape);
  std::vector<float> values;
  for (int64_t i = 0; i < num_elements; ++i) {
    values.push_back(SynthValue(tensor.name, "master", i));
  }
  std::vector<std::byte> rounded(num_elements * ckpt::ItemSize(dtype));
  ckpt::ConvertValues(DType::kF32,
                      reinterpret_cast<const std::byte*>(values.data()), dtype,
                      rounded.data(), num_elements);
  return rounded;
}

void ExpectHoldsWeights(const std::string& run_dir, const ModelConfig& model,
                        DType dtype) {
  ASSERT_OK_AND_ASSIGN(const auto reader, ckpt::Reader::Open(StepOf(run_dir)));
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  ASSERT_EQ(reader->table().tensors.size(), tensors.size());
  for (const LogicalTensor& tensor : tensors) {
    ASSERT_OK_AND_ASSIGN(const int64_t t,
                         reader->FindTensor(tensor.name, "weight"));
    ASSERT_EQ(reader->table().tensors[t].dtype, dtype);
    const std::vector<std::byte> expected = Weights(tensor, dtype);
    std::vector<std::byte> found(expected.size());
    ASSERT_OK(
        reader->ReadTensor(t, ckpt::WholeBox(tensor.shape), found.data()));
    EXPECT_TRUE(found == expected) << tensor.name;
  }
}

TEST_F(CopyChoiceTest, WeightsOfAnyDTypeGoFromAnyLayoutToAnyOther) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model = RandomMixture(random);
    ASSERT_OK(
        WriteSynth(Path("source"), model, RandomWideLayout(model, random)));
    const Layout to = RandomWideLayout(model, random);
    const DType dtype = seed % 2 == 0 ? DType::kBF16 : DType::kF32;
    ASSERT_OK_AND_ASSIGN(
        const ReshardReport exported,
        Run("source", "weights", to, {.weights_only = true, .dtype = dtype}));
    EXPECT_OK(exported.proof);
    EXPECT_EQ(exported.converted, dtype != DType::kF32);
    ExpectHoldsWeights(Path("weights"), model, dtype);

    // From there on they are copied as they are.
    ASSERT_OK_AND_ASSIGN(
        const ReshardReport moved,
        Run("weights", "moved", RandomWideLayout(model, random), {}));
    EXPECT_OK(moved.proof);
    EXPECT_FALSE(moved.converted);
    EXPECT_EQ(moved.root_after, exported.root_after);
    ExpectHoldsWeights(Path("moved"), model, dtype);
    ASSERT_OK(Run("moved", "back", to, {}));
    EXPECT_TRUE(Snapshot(Path("back")) == Snapshot(Path("weights")));
    for (const char* name : {"source", "weights", "moved", "back"}) {
      ASSERT_OK(ckpt::RemoveTree(Path(name)));
    }
  }
}

TEST_F(CopyChoiceTest, WeightsAreSpreadOverReplicasWhateverTheOptimizer) {
  ASSERT_OK(WriteSynth(Path("source"), GptModel(), {}));
  const CopyChoice weights = {.weights_only = true};
  ASSERT_OK(Run("source", "plain", {.data = 3}, weights));
  ASSERT_OK(Run("source", "cut", {.data = 3, .distributed_optimizer = true},
                weights));
  for (const int part : {0, 1, 2}) {
    const std::string name = ckpt::PartFileName(part);
    EXPECT_TRUE(ckpt::ReadFile(ckpt::JoinPath(StepOf(Path("plain")), name)) ==
                ckpt::ReadFile(ckpt::JoinPath(StepOf(Path("cut")), name)));
  }
}

TEST_F(CopyChoiceTest, SelectedTensorsAloneAreCopiedAndNeedBeThere) {
  ASSERT_OK(WriteSynth(Path("source"), LlamaModel(), {.tensor = 2}));
  const CopyChoice some = {.select = "layers.[12].*"};
  ASSERT_OK_AND_ASSIGN(const ReshardReport report,
                       Run("source", "some", {.pipeline = 2}, some));
  EXPECT_OK(report.proof);
  int64_t expected = 0;
  for (const LogicalTensor& tensor : LogicalTensors(LlamaModel())) {
    if (tensor.name.starts_with("layers.1.") ||
        tensor.name.starts_with("layers.2.")) {
      expected += 3;
    }
  }
  EXPECT_EQ(report.tensors, expected);
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       ckpt::Reader::Open(StepOf(Path("some"))));
  EXPECT_EQ(std::ssize(reader->table().tensors), expected);
  for (const ckpt::Tensor& tensor : reader->table().tensors) {
    EXPECT_THAT(tensor.name,
                ::testing::AnyOf(::testing::StartsWith("layers.1."),
                                 ::testing::StartsWith("layers.2.")));
  }
  // They go on to other layouts, by the same choice.
  EXPECT_OK(Run("some", "again", {.tensor = 2}, some));
  EXPECT_THAT(Run("some", "whole", {.tensor = 2}, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("embedding.word.weight"),
                             HasSubstr("is missing"))));
}

TEST_F(CopyChoiceTest, RefusesWhatCannotBeAndLeavesNothing) {
  ASSERT_OK(WriteSynth(Path("source"), GptModel(), {}));
  EXPECT_THAT(Run("source", "out", {}, {.dtype = DType::kBF16}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--weights-only")));
  EXPECT_THAT(
      Run("source", "out", {}, {.weights_only = true, .dtype = DType::kI32})
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("I32")));
  for (const char* pattern : {"layer.*", "[", ""}) {
    EXPECT_THAT(Run("source", "out", {}, {.select = pattern}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(pattern),
                               HasSubstr("embedding.word.weight"))));
  }
  ASSERT_OK_AND_ASSIGN(const auto names,
                       ckpt::ListDirectory(directory_.path()));
  EXPECT_THAT(names, ::testing::ElementsAre("source"));
}

TEST_F(CopyChoiceTest, B39RunsDoNotGoOnFromWeightsAlone) {
  ASSERT_OK(WriteSynth(Path("source"), GptModel(), {}));
  ASSERT_OK(Run("source", "weights", {}, {.weights_only = true}));
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       ckpt::Reader::Open(StepOf(Path("weights"))));
  EXPECT_THAT(CheckTensors(*reader, LogicalTensors(GptModel())),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("without optimizer state")));
}

}  // namespace
}  // namespace shardshift::reshard
