// Sources that reshard must refuse, leaving nothing behind.
// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/writer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/reshard.h"
#include "reshard/layout/rank_state.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BadSourceTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  // Reshards "source"; whatever comes of it, nothing may be left behind.
  absl::Status Reshard() {
    auto source = ckpt::Reader::Open(StepOf(Path("source")));
    if (!source.ok()) return source.status();
    const absl::StatusOr<ReshardReport> report =
        ReshardCheckpoint(**source, Path("out"), {.tensor = 2}, {});
    auto names = ckpt::ListDirectory(directory_.path());
    EXPECT_OK(names);
    EXPECT_THAT(*names, ElementsAre("source"));
    return report.ok() ? report->proof : report.status();
  }

  // The fragments of a model on one rank.
  static std::vector<ckpt::FragmentSpec> Specs(const ModelConfig& model) {
    std::vector<ckpt::FragmentSpec> specs;
    for (const LogicalTensor& tensor : LogicalTensors(model)) {
      for (const char* role : kOptimizerRoles) {
        specs.push_back({tensor.name, role, ckpt::DType::kF32, tensor.shape,
                         ckpt::WholeBox(tensor.shape)});
      }
    }
    return specs;
  }

  void WriteSource(
      const std::vector<ckpt::FragmentSpec>& specs,
      const std::string& state = StateText(SampleState(LlamaModel())),
      const std::string& record = StateText(SampleRecord({})),
      const std::function<void(ckpt::Table&)>& change = [](ckpt::Table&) {}) {
    ASSERT_OK_AND_ASSIGN(const std::string step_dir,
                         ckpt::BeginCheckpoint(Path("source"), 3));
    ASSERT_OK_AND_ASSIGN(
        const auto writer,
        ckpt::PartWriter::Create(step_dir, 0, {3, state}, specs));
    for (size_t i = 0; i < specs.size(); ++i) {
      const std::vector<std::byte> zeros(ckpt::NumElements(specs[i].box) *
                                         ckpt::ItemSize(specs[i].dtype));
      if (zeros.empty()) continue;
      ASSERT_OK(writer->WriteBlock(static_cast<int64_t>(i), 0, zeros));
    }
    ASSERT_OK_AND_ASSIGN(ckpt::PartReceipt receipt, writer->Close());
    change(receipt.table);
    ASSERT_OK(ckpt::CommitCheckpoint(Path("source"), {3, state},
                                     {std::move(receipt)}, record, false));
  }

  // Changes one bit of a part, in the middle of a fragment.
  void FlipBit(const std::string& name, const std::string& role) {
    std::string file;
    int64_t at = 0;
    {
      ASSERT_OK_AND_ASSIGN(const auto reader,
                           ckpt::Reader::Open(StepOf(Path("source"))));
      ASSERT_OK_AND_ASSIGN(const int64_t tensor,
                           reader->FindTensor(name, role));
      const ckpt::Fragment& fragment = reader->Fragments(tensor).back();
      file = ckpt::JoinPath(reader->directory(),
                            ckpt::PartFileName(fragment.part));
      at = fragment.blocks.front().offset_bytes +
           ckpt::FragmentBytes(reader->table(), fragment) / 2;
    }
    std::string bytes = ckpt::ReadFile(file);
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    ckpt::WriteFile(file, bytes);
  }

  const ckpt::TempDir directory_;
};

TEST_F(BadSourceTest, WithOneFlippedBitIsDataLossThatNamesTensorAndFile) {
  ASSERT_OK(WriteSynth(Path("source"), LlamaModel(),
                       {.data = 3, .distributed_optimizer = true}));
  FlipBit("layers.2.mlp.up.weight", "exp_avg_sq");
  EXPECT_THAT(Reshard(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("layers.2.mlp.up.weight"),
                             HasSubstr("exp_avg_sq"), HasSubstr("part-0000"))));
}

// What is written is not what the source says it holds.
TEST_F(BadSourceTest, WithAFingerprintOfOtherValuesIsNotPublished) {
  const std::vector<ckpt::FragmentSpec> specs = Specs(LlamaModel());
  WriteSource(
      specs, StateText(SampleState(LlamaModel())), StateText(SampleRecord({})),
      [](ckpt::Table& table) { table.fragments[5].fingerprint.low += 1; });
  const absl::Status status = Reshard();
  ASSERT_OK_AND_ASSIGN(const auto source,
                       ckpt::Reader::Open(StepOf(Path("source"))));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr(Describe(source->table().tensors[5]))));
  EXPECT_FALSE(ckpt::Exists(Path("out")).value());
}

TEST_F(BadSourceTest, ThatIsWholeIsTaken) {
  WriteSource(Specs(LlamaModel()));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       ckpt::Reader::Open(StepOf(Path("source"))));
  EXPECT_OK(ReshardCheckpoint(*source, Path("out"), {.tensor = 2}, {}));
}

TEST_F(BadSourceTest, WithoutOneTensorIsRefusedByItsName) {
  std::vector<ckpt::FragmentSpec> specs = Specs(LlamaModel());
  std::erase_if(specs, [](const ckpt::FragmentSpec& spec) {
    return spec.tensor == "layers.1.attention.k.weight" &&
           spec.role == "exp_avg";
  });
  WriteSource(specs);
  EXPECT_THAT(Reshard(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("layers.1.attention.k.weight"),
                             HasSubstr("exp_avg"), HasSubstr("is missing"))));
}

TEST_F(BadSourceTest, WithATensorTooManyIsRefusedByItsName) {
  for (const auto& [name, role] :
       {std::pair("layers.0.extra_norm.weight", "master"),
        std::pair("final_norm.weight", "momentum")}) {
    std::vector<ckpt::FragmentSpec> specs = Specs(LlamaModel());
    specs.push_back({name, role, ckpt::DType::kF32, {2}, {{0}, {2}}});
    WriteSource(specs);
    EXPECT_THAT(Reshard(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(name), HasSubstr(role),
                               HasSubstr("does not belong to the model"))));
    ASSERT_OK(ckpt::RemoveTree(Path("source")));
  }
}

TEST_F(BadSourceTest, WithAnotherDtypeIsRefusedWithBoth) {
  std::vector<ckpt::FragmentSpec> specs = Specs(LlamaModel());
  for (ckpt::FragmentSpec& spec : specs) {
    if (spec.tensor == "output.weight") spec.dtype = ckpt::DType::kBF16;
  }
  WriteSource(specs);
  EXPECT_THAT(Reshard(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  AllOf(HasSubstr("output.weight"),
                                        HasSubstr("BF16[251,16]"),
                                        HasSubstr("F32[251,16]"))));
}

TEST_F(BadSourceTest, WithAPaddedVocabularyIsRefusedWithBothShapes) {
  std::vector<ckpt::FragmentSpec> specs = Specs(LlamaModel());
  for (ckpt::FragmentSpec& spec : specs) {
    if (spec.tensor != "embedding.word.weight") continue;
    spec.shape[0] = spec.box.extent[0] = 256;
  }
  WriteSource(specs);
  EXPECT_THAT(Reshard(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  AllOf(HasSubstr("embedding.word.weight"),
                                        HasSubstr("F32[256,16]"),
                                        HasSubstr("F32[251,16]"))));
}

TEST_F(BadSourceTest, WithStateOrRecordItCannotReadIsRefused) {
  const std::string state = StateText(SampleState(LlamaModel()));
  const std::string record = StateText(SampleRecord({}));
  const std::vector<std::vector<std::string>> cases = {
      {"[]", record, "state is no JSON object"},
      {"{", record, "state is no JSON object"},
      {"{}", record, "model is missing"},
      {state, "", "record is no JSON object"},
      {state, R"({"layout":[]})", "layout"},
  };
  for (const std::vector<std::string>& c : cases) {
    WriteSource(Specs(LlamaModel()), c[0], c[1]);
    EXPECT_THAT(Reshard(),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(c[2]), HasSubstr(Path("source")))));
    ASSERT_OK(ckpt::RemoveTree(Path("source")));
  }
}

}  // namespace
}  // namespace shardshift::reshard
