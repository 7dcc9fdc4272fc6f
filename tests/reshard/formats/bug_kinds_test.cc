// Faults that bit users of other converters, by the number of their kind: here
// those of Megatron's checkpoints.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/synth.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/torch_file.h"
#include "reshard/formats/torch_writer.h"
#include "reshard/layout/model_map.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/megatron_sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BugKindsOfMegatron : public MegatronSampleTest {};

TEST_F(BugKindsOfMegatron, B12PlainStagesBecomeInterleavedOnesAndBack) {
  Make(GptModel(), Stages(4));
  ASSERT_OK(Export("megatron", "interleaved", Stages(2, 2)));
  ExpectEqual("interleaved");
  ASSERT_OK(Export("interleaved", "plain", Stages(4)));
  EXPECT_TRUE(Snapshot(Path("plain")) == Snapshot(Path("megatron")));
}

TEST_F(BugKindsOfMegatron, B46AndB47AndB49RowsOfPaddingAreZeroAndStayBehind) {
  Layout layout;
  layout.tensor = 2;
  Make(LlamaModel(), layout);  // 251 tokens, padded to 256
  OpenOptions options;
  options.foreign.weights_only = true;
  ASSERT_OK_AND_ASSIGN(const OpenedSource source,
                       OpenSource(Path("megatron"), options));
  ASSERT_OK_AND_ASSIGN(
      const int64_t embedding,
      source.reader->FindTensor("embedding.word.weight", "weight"));
  EXPECT_EQ(source.reader->table().tensors[embedding].shape,
            (ckpt::Shape{251, 16}));
  // In the file the storage has 128 rows, the last five of zeros.
  ASSERT_OK_AND_ASSIGN(const ckpt::File file,
                       ckpt::File::OpenForRead(FileOf("mp_rank_01")));
  ASSERT_OK_AND_ASSIGN(const TorchFile torch, TorchFile::Read(file));
  ASSERT_OK_AND_ASSIGN(const PickleValue module, torch.root().Get("model"));
  ASSERT_OK_AND_ASSIGN(const PickleValue value,
                       module.Get("embedding.word_embeddings.weight"));
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor, torch.Tensor(value));
  EXPECT_EQ(tensor.shape, (ckpt::Shape{128, 16}));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes,
                       ReadTensor(file, tensor, 1 << 20));
  const std::vector<std::byte> zeros(5 * 16 * 2);
  EXPECT_EQ(
      std::memcmp(bytes.data() + 123 * 16 * 2, zeros.data(), zeros.size()), 0);
  ExpectEqual("megatron");
}

TEST_F(BugKindsOfMegatron, B48VocabulariesThatRanksDoNotDivideComeBack) {
  ASSERT_OK(WriteSynth(Path("run"), GptModel(), {}));
  for (const int64_t tensor : {1, 2, 4}) {
    Layout layout;
    layout.tensor = tensor;
    const std::string name = "m" + std::to_string(tensor);
    ASSERT_OK(Export("run", name, layout));
    ExpectEqual(name);
  }
}

TEST_F(BugKindsOfMegatron, B50AndB51OfAStageIsWhatItHas) {
  Make(GptModel(), Stages(2));
  const auto first = NamesOf("mp_rank_00_000");
  const auto last = NamesOf("mp_rank_00_001");
  EXPECT_TRUE(Has(first, "embedding.word_embeddings"));
  EXPECT_TRUE(Has(first, "embedding.position_embeddings"));
  EXPECT_FALSE(Has(first, "final_layernorm"));
  EXPECT_FALSE(Has(last, "embedding."));
  EXPECT_TRUE(Has(last, "final_layernorm"));
  // The tied matrix, which the last stage needs for the head.
  EXPECT_TRUE(Has(last, "output_layer.weight"));
  // Both number their layers from 0 on.
  EXPECT_TRUE(Has(last, "decoder.layers.0."));
  EXPECT_FALSE(Has(last, "decoder.layers.2."));
}

TEST_F(BugKindsOfMegatron, B52TheTiedLayerIsInTheLastChunkOfInterleavedStages) {
  Make(GptModel(), Stages(2, 2));
  EXPECT_FALSE(Has(NamesOf("mp_rank_00_001", "model0"), "output_layer"));
  EXPECT_TRUE(Has(NamesOf("mp_rank_00_001", "model1"), "output_layer.weight"));
  ExpectEqual("megatron");
}

TEST_F(BugKindsOfMegatron, B57NeighboursInAFlatBufferStayApart) {
  Layout layout;
  layout.data = 3;
  layout.distributed_optimizer = true;
  Make(LlamaModel(), layout);
  ExpectEqual("megatron");
}

TEST_F(BugKindsOfMegatron,
       B58AndB59AndB66GroupedAndSequentialExpertsAreTheSame) {
  Layout layout;
  layout.expert = 2;
  layout.data = 2;
  layout.distributed_optimizer = true;
  Make(MixtureModel(), layout);
  EXPECT_TRUE(Has(NamesOf("mp_rank_00_001"), "mlp.experts.linear_fc1.weight1"));
  ASSERT_OK_AND_ASSIGN(const OpenedSource source,
                       OpenSource(Path("megatron"), {}));
  nlohmann::json state = nlohmann::json::parse(source.reader->state());
  state["megatron"]["args"]["moe_grouped_gemm"] = false;
  ASSERT_OK(WriteSynthCheckpoint(Path("other"), 3, MixtureModel(), {}, state,
                                 SampleRecord({})));
  ASSERT_OK(Export("other", "sequential", layout));
  ExpectEqual("megatron");
  ExpectEqual("sequential");
}

TEST_F(BugKindsOfMegatron, B121AndB123NamesThatDoNotMatchAreErrors) {
  const LocalBuffer whole = ModelMap(GptModel(), Layout{}).MakeBuffer({});
  std::vector<const Parameter*> parameters;
  for (const Parameter& p : whole.parameters) parameters.push_back(&p);
  const auto read = [&](absl::string_view from, const std::string& to) {
    TorchFileBuilder builder;
    std::vector<std::string> storages;
    PyValue::Attributes entries;
    for (const ModuleParameter& p :
         ModuleInOrder(whole.parameters, {}).parameters) {
      const ckpt::Shape& shape = p.parameter->shape;
      const int64_t count = p.parameter->num_elements();
      storages.emplace_back(count * 4, '\0');
      PyValue tensor =
          builder.Tensor(builder.AddStorage(ckpt::DType::kF32, count), shape);
      if (p.name == from) entries.emplace_back(to, tensor);
      if (p.name == from && to != "extra") continue;
      entries.emplace_back(p.name, std::move(tensor));
    }
    ckpt::WriteFile(
        Path("module.pt"),
        builder.Layout(PyValue::Dict(std::move(entries))).Bytes(storages));
    const auto inner = [&]() -> absl::Status {
      SS_ASSIGN_OR_RETURN(const ckpt::File file,
                          ckpt::File::OpenForRead(Path("module.pt")));
      SS_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Read(file));
      return ReadModule(torch, torch.root(), parameters).status();
    };
    return inner();
  };
  const std::string norm = "decoder.final_layernorm.bias";
  EXPECT_OK(read(norm, norm));
  EXPECT_THAT(read(norm, "decoder.norm.bias"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("decoder.norm.bias is no parameter")));
  EXPECT_THAT(read(norm, "extra"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("extra is no parameter")));
  EXPECT_THAT(read(norm, "decoder.final_layernorm._extra_state"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("final_norm.bias is missing")));
}

TEST_F(BugKindsOfMegatron, B126WhatDoesNotDivideIsToldBeforeAnythingIsWritten) {
  ASSERT_OK(WriteSynth(Path("run"), GptModel(), {}));
  EXPECT_THAT(Export("run", "copy", Stages(3)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("4"), HasSubstr("3"))));
  EXPECT_FALSE(*ckpt::Exists(Path("copy")));
  EXPECT_FALSE(*ckpt::Exists(Path("copy.partial")));
}

TEST_F(BugKindsOfMegatron, B127DamageIsNamedAndNothingIsPublished) {
  Layout layout;
  layout.distributed_optimizer = true;
  Make(GptModel(), layout);
  const std::string path = FileOf("mp_rank_00", "distrib_optim.pt");
  std::string bytes = ckpt::ReadFile(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ckpt::WriteFile(path, bytes);
  EXPECT_THAT(Export("megatron", "copy", Layout{}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path), HasSubstr("CRC-32"))));
  EXPECT_FALSE(*ckpt::Exists(Path("copy")));
}

TEST_F(BugKindsOfMegatron, B128TheRunGoesOnWhereItWas) {
  Make(GptModel(), Stages(2));
  EXPECT_EQ(ckpt::ReadFile(Path("megatron/latest_checkpointed_iteration.txt")),
            "3");
  ASSERT_OK_AND_ASSIGN(const OpenedSource there, OpenSource(Path("run"), {}));
  ASSERT_OK_AND_ASSIGN(const OpenedSource back,
                       OpenSource(Path("megatron"), {}));
  const auto a = nlohmann::json::parse(there.reader->state());
  const auto b = nlohmann::json::parse(back.reader->state());
  EXPECT_EQ(b["progress"]["step"], 3);
  EXPECT_EQ(b["megatron"]["args"]["iteration"], 3);
  EXPECT_EQ(a["model"], b["model"]);
}

TEST_F(BugKindsOfMegatron, B130AndB131MastersKeep32Bits) {
  Make(LlamaModel(), Stages(2));
  ASSERT_OK_AND_ASSIGN(const OpenedSource source,
                       OpenSource(Path("megatron"), {}));
  for (const ckpt::Tensor& tensor : source.reader->table().tensors) {
    EXPECT_EQ(tensor.dtype, ckpt::DType::kF32) << tensor.name;
  }
  ExpectEqual("megatron");
}

}  // namespace
}  // namespace shardshift::reshard
