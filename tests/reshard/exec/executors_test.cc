// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/executors.h"

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/io/file.h"
#include "ckpt/writer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/synth.h"
#include "reshard/layout/content.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;

// A flat buffer of a rank, under each role.
struct Memory {
  explicit Memory(const LocalBuffer& state)
      : roles(kOptimizerRoles.size(),
              std::vector<float>(state.buffer.num_elements, NAN)) {}
  float* At(const Piece& piece, int64_t role) {
    return roles[role].data() + piece.offset;
  }
  std::vector<std::vector<float>> roles;
};

// The memory of a rank must hold, of role and element, the value that
// SynthValue gives its label, and nothing where there is none.
void ExpectSynthValues(const ModelConfig& model, const LocalBuffer& state,
                       const Memory& memory) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  std::vector<Label> labels(state.buffer.num_elements);
  PlacePieces(model, state.pieces, labels);
  int64_t wrong = 0;
  for (size_t role = 0; role < kOptimizerRoles.size(); ++role) {
    for (size_t i = 0; i < labels.size(); ++i) {
      const float found = memory.roles[role][i];
      if (labels[i].is_padding()) {
        if (!std::isnan(found)) ++wrong;
        continue;
      }
      const float expected = SynthValue(tensors[labels[i].tensor].name,
                                        kOptimizerRoles[role], labels[i].index);
      if (found != expected) ++wrong;
    }
  }
  EXPECT_EQ(wrong, 0);
}

void LoadAndCheck(const ckpt::Reader& reader, const ModelConfig& model,
                  const Layout& layout) {
  SCOPED_TRACE(ToString(layout));
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  ASSERT_OK(CheckTensors(reader, tensors));
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    const RankState state = MakeRankState(model, layout, rank);
    for (const LocalBuffer& buffer : state.buffers) {
      Memory memory(buffer);
      ASSERT_OK_AND_ASSIGN(
          const auto reads,
          PlanLoad(reader, tensors, buffer.pieces,
                   [&memory](const Piece& piece, int64_t role) {
                     return memory.At(piece, role);
                   }));
      ASSERT_OK(reader.Read(reads));
      ExpectSynthValues(model, buffer, memory);
    }
  }
}

TEST(PlanLoad, PutsEveryValueInItsPlaceFromAnyLayoutIntoAnyOther) {
  for (uint32_t seed = 500; seed < 516; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model = RandomMixture(random);
    const Layout from = RandomWideLayout(model, random);
    const ckpt::TempDir directory;
    const std::string run_dir = ckpt::JoinPath(directory.path(), "run");
    ASSERT_OK(WriteSynth(run_dir, model, from));
    ASSERT_OK_AND_ASSIGN(const auto reader,
                         ckpt::Reader::Open(StepOf(run_dir)));
    LoadAndCheck(*reader, model, from);
    LoadAndCheck(*reader, model, RandomWideLayout(model, random));
  }
}

TEST(PlanLoad, WorksForBothFamiliesOverEveryAxis) {
  const std::vector<Layout> layouts = {
      {},
      {.tensor = 4},
      {.pipeline = 4},
      {.data = 3, .distributed_optimizer = true},
      {.tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true}};
  for (const ModelConfig& model : {GptModel(), LlamaModel()}) {
    const ckpt::TempDir directory;
    const std::string run_dir = ckpt::JoinPath(directory.path(), "run");
    ASSERT_OK(WriteSynth(run_dir, model, layouts.back()));
    ASSERT_OK_AND_ASSIGN(const auto reader,
                         ckpt::Reader::Open(StepOf(run_dir)));
    for (const Layout& layout : layouts) LoadAndCheck(*reader, model, layout);
  }
}

TEST(AppendReads, RefusesABoxBeyondTheTensor) {
  const ckpt::TempDir directory;
  const std::string run_dir = ckpt::JoinPath(directory.path(), "run");
  ASSERT_OK(WriteSynth(run_dir, GptModel(), {}));
  ASSERT_OK_AND_ASSIGN(const auto reader, ckpt::Reader::Open(StepOf(run_dir)));
  ASSERT_OK_AND_ASSIGN(const int64_t tensor,
                       reader->FindTensor("final_norm.bias", "exp_avg"));
  std::vector<float> values(8);
  const BoxBuffer buffer = {{{10}, {8}},
                            reinterpret_cast<std::byte*>(values.data())};
  std::vector<ckpt::FragmentRead> reads;
  EXPECT_THAT(
      AppendReads(*reader, tensor, {&buffer, 1}, reads),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("final_norm.bias")));
}

// All that a rank owns, in one memory: pieces one after another, in the order
// of buffers.
struct OwnedMemory {
  explicit OwnedMemory(const RankState& state) {
    int64_t elements = 0;
    for (const LocalBuffer& buffer : state.buffers) {
      for (Piece piece : buffer.pieces) {
        piece.offset = elements;
        elements += ckpt::NumElements(piece.box);
        pieces.push_back(std::move(piece));
      }
    }
    roles.resize(kOptimizerRoles.size(), std::vector<float>(elements, NAN));
  }
  std::vector<Piece> pieces;
  std::vector<std::vector<float>> roles;
};

// A save of loaded memory, as a trainer on `layout` does it.
absl::Status SaveFromMemory(const ckpt::Reader& source,
                            const ModelConfig& model, const Layout& layout,
                            const std::string& run_dir) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  const auto items = AssignWriters(model, layout);
  absl::StatusOr<std::string> step_dir =
      ckpt::BeginCheckpoint(run_dir, source.step());
  if (!step_dir.ok()) return step_dir.status();
  const ckpt::CheckpointId id = {source.step(), StateText(SampleState(model))};
  std::vector<ckpt::PartReceipt> receipts;
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    OwnedMemory memory(MakeRankState(model, layout, rank));
    const auto at = [&memory](const Piece& piece, int64_t role) {
      return memory.roles[role].data() + piece.offset;
    };
    const auto reads = PlanLoad(source, tensors, memory.pieces, at);
    if (!reads.ok()) return reads.status();
    absl::Status status = source.Read(*reads);
    if (!status.ok()) return status;
    auto receipt =
        WritePartFromMemory(*step_dir, rank, id, tensors, items[rank],
                            ImagesOf(items[rank], memory.pieces, at));
    if (!receipt.ok()) return receipt.status();
    EXPECT_EQ(receipt->has_value(), !items[rank].empty());
    if (receipt->has_value()) receipts.push_back(**std::move(receipt));
  }
  return ckpt::CommitCheckpoint(run_dir, id, receipts,
                                StateText(SampleRecord(layout)),
                                /*replace_existing=*/false);
}

TEST(WritePartFromMemory, GivesTheBytesOfACheckpointWrittenFromFiles) {
  for (uint32_t seed = 520; seed < 526; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model = RandomMixture(random);
    const Layout from = RandomWideLayout(model, random);
    const Layout to = RandomWideLayout(model, random);
    const ckpt::TempDir directory;
    const std::string source = ckpt::JoinPath(directory.path(), "source");
    const std::string saved = ckpt::JoinPath(directory.path(), "saved");
    const std::string expected = ckpt::JoinPath(directory.path(), "expected");
    ASSERT_OK(WriteSynth(source, model, from));
    ASSERT_OK(WriteSynth(expected, model, to));
    ASSERT_OK_AND_ASSIGN(const auto reader, ckpt::Reader::Open(StepOf(source)));
    ASSERT_OK(SaveFromMemory(*reader, model, to, saved));
    EXPECT_TRUE(Snapshot(saved) == Snapshot(expected));
  }
}

}  // namespace
}  // namespace shardshift::reshard
