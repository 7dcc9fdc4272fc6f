// Sources that reshard must refuse, leaving nothing behind.
// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/writer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/reshard.h"
#include "reshard/layout/content.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/heap_peak.h"
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
    const auto before = Snapshot(directory_.path());
    const absl::StatusOr<ReshardReport> report =
        ReshardCheckpoint(**source, Path("out"), {.tensor = 2}, {});
    EXPECT_TRUE(Snapshot(directory_.path()) == before);
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

TEST_F(BadSourceTest, B26AndB58WithoutOneTensorIsRefusedByItsName) {
  const auto refused = [this](const ModelConfig& model, const char* name,
                              const char* role) {
    std::vector<ckpt::FragmentSpec> specs = Specs(model);
    std::erase_if(specs, [&](const ckpt::FragmentSpec& spec) {
      return spec.tensor == name && spec.role == role;
    });
    WriteSource(specs, StateText(SampleState(model)));
    EXPECT_THAT(Reshard(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    AllOf(HasSubstr(name), HasSubstr(role),
                                          HasSubstr("is missing"))));
    ASSERT_OK(ckpt::RemoveTree(Path("source")));
  };
  refused(LlamaModel(), "layers.1.attention.k.weight", "exp_avg");
  refused(MixtureModel(), "layers.3.mlp.experts.2.up.weight", "master");
}

TEST_F(BadSourceTest, B22WithATensorTooManyIsRefusedByItsName) {
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

// What two ranks offer is never merged, whatever the values are.
TEST_F(BadSourceTest, B09AndB18WithTwoHoldersOfAnElementIsRefusedByItsName) {
  const std::string state = StateText(SampleState(LlamaModel()));
  for (const auto& [start, word] :
       {std::pair(0, "[0:10] is listed twice"), std::pair(6, "overlap")}) {
    ASSERT_OK_AND_ASSIGN(const std::string step_dir,
                         ckpt::BeginCheckpoint(Path("source"), 3));
    std::vector<ckpt::PartReceipt> receipts;
    for (int64_t part = 0; part < 2; ++part) {
      const std::vector<ckpt::FragmentSpec> specs = {{"final_norm.weight",
                                                      "master",
                                                      ckpt::DType::kF32,
                                                      {16},
                                                      {{part * start}, {10}}}};
      ASSERT_OK_AND_ASSIGN(
          const auto writer,
          ckpt::PartWriter::Create(step_dir, part, {3, state}, specs));
      ASSERT_OK(writer->WriteBlock(0, 0, std::vector<std::byte>(40)));
      ASSERT_OK_AND_ASSIGN(ckpt::PartReceipt receipt, writer->Close());
      receipts.push_back(std::move(receipt));
    }
    EXPECT_THAT(
        ckpt::CommitCheckpoint(Path("source"), {3, state}, receipts,
                               StateText(SampleRecord({})), false),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("final_norm.weight"), HasSubstr(word))));
    EXPECT_FALSE(ckpt::Reader::Open(StepOf(Path("source"))).ok());
    ASSERT_OK(ckpt::RemoveTree(Path("source")));
  }
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

// What a text claims must not be taken for true before it is checked: a source
// of some kilobytes is refused in little memory, whatever it says.
class HostileTextTest : public BadSourceTest {
 protected:
  void ExpectRefused(const std::string& state, const std::string& record,
                     const std::string& word) {
    SCOPED_TRACE(word);
    WriteSource(Specs(Small()), state, record);
    const HeapPeak peak;
    const absl::Status status = Reshard();
    EXPECT_LT(peak.bytes(), 8 << 20);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(word), HasSubstr(Path("source"))));
    ASSERT_OK(ckpt::RemoveTree(Path("source")));
  }

  void ExpectModelRefused(const nlohmann::json& changes,
                          const std::string& word) {
    nlohmann::json state = SampleState(Small());
    state["model"].update(changes);
    ExpectRefused(StateText(state), StateText(SampleRecord({})), word);
  }

  void ExpectLayoutRefused(const nlohmann::json& changes,
                           const std::string& word) {
    nlohmann::json record = SampleRecord({});
    record["layout"].update(changes);
    ExpectRefused(StateText(SampleState(Small())), StateText(record), word);
  }

  static ModelConfig Small() {
    ModelConfig model = LlamaModel();
    model.num_layers = 1;
    return model;
  }
};

constexpr int64_t kHuge = int64_t{1} << 62;

TEST_F(HostileTextTest, WithAnExtentOutOfRangeIsRefused) {
  for (const char* key :
       {"num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads",
        "num_query_groups", "kv_channels", "vocab_size", "padded_vocab_size",
        "max_position_embeddings", "num_experts"}) {
    ExpectModelRefused({{key, kHuge}}, absl::StrCat(key, " is ", kHuge));
  }
  ExpectModelRefused({{"num_layers", 1'000'000'000}},
                     "num_layers is 1000000000");
  ExpectModelRefused({{"vocab_size", ~uint64_t{0}}}, "vocab_size is -1");
  ExpectModelRefused({{"hidden_size", 1 << 30}, {"ffn_hidden_size", 1 << 30}},
                     "parameters, expected at most");
}

TEST_F(HostileTextTest, WithMoreTensorsThanThereAreIsRefused) {
  ExpectModelRefused({{"num_layers", 1 << 16}}, "model has 589827 tensors");
  ExpectModelRefused({{"num_experts", 1 << 18}, {"moe_ffn_hidden_size", 1}},
                     "tensors, the checkpoint only 36");
}

TEST_F(HostileTextTest, WithALayoutThatCannotBeIsRefused) {
  for (const auto& [key, word] :
       {std::pair("tensor_model_parallel_size", "--tensor-model-parallel"),
        std::pair("pipeline_model_parallel_size", "--pipeline-model-parallel"),
        std::pair("data_parallel_size", "--data-parallel-size"),
        std::pair("expert_model_parallel_size", "--expert-model-parallel"),
        std::pair("expert_tensor_parallel_size", "--expert-tensor-parallel"),
        std::pair("num_virtual_stages_per_pipeline_rank",
                  "--num-virtual-stages-per-pipeline-rank"),
        std::pair("num_layers_per_virtual_pipeline_stage",
                  "--num-layers-per-virtual-pipeline-stage"),
        std::pair("decoder_first_pipeline_num_layers",
                  "--decoder-first-pipeline-num-layers")}) {
    for (const int64_t value : {kHuge, -kHuge}) {
      ExpectLayoutRefused({{key, value}},
                          absl::StrCat("record: layout: ", word));
    }
  }
  ExpectLayoutRefused(
      {{"pipeline_model_parallel_layout", std::vector<int64_t>(50'000, 1)}},
      "50000 layers in all");
  ExpectLayoutRefused({{"pipeline_model_parallel_layout", {kHuge, kHuge}}},
                      absl::StrCat("a stage of ", kHuge));
}

TEST_F(HostileTextTest, ThatNestsWithoutEndIsRefused) {
  const std::string deep(100'000, '[');
  ExpectRefused(deep, StateText(SampleRecord({})),
                "checkpoint state: JSON nests deeper");
  ExpectRefused(StateText(SampleState(Small())), deep,
                "checkpoint record: JSON nests deeper");
}

}  // namespace
}  // namespace shardshift::reshard
