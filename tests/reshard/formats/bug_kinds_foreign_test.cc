// Faults that bit users of other converters, by the number of their kind: here
// those of what a model and its run are, on the way from one format to another.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/synth.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/safetensors.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/megatron_sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/reshard/formats/torch_tree.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

SampleExport HuggingFace() {
  return {.to = Format::kSafetensors, .dtype = ckpt::DType::kF32};
}

SampleExport InF32(const Layout& layout) {
  return {.layout = layout, .dtype = ckpt::DType::kF32};
}

// The bytes of rows [begin, end) of a tensor of WriteSynth's.
std::string Rows(const std::string& tensor, int64_t begin, int64_t end,
                 int64_t columns, const char* role = "master") {
  std::vector<float> values;
  for (int64_t i = begin * columns; i < end * columns; ++i) {
    values.push_back(SynthValue(tensor, role, i));
  }
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

class BugKindsOfFormats : public MegatronSampleTest {
 protected:
  // What "NAME" says of itself.
  json StateOf(const std::string& name) const {
    const auto source = Open(name);
    EXPECT_OK(source);
    return source.ok() ? json::parse(source->reader->state()) : json();
  }
  json ArgsOf(const std::string& name) const {
    return StateOf(name)["megatron"]["args"];
  }

  // "run", with more in its state.
  absl::Status WriteRun(const ModelConfig& model, const json& more) const {
    json state = SampleState(model);
    state.update(more, /*merge_objects=*/true);
    return WriteSynthCheckpoint(Path("run"), 3, model, {}, state,
                                SampleRecord({}));
  }

  // A tensor of a Hugging Face folder.
  std::string SafetensorOf(const std::string& folder,
                           const std::string& name) const {
    const std::string path = Path(folder + "/model.safetensors");
    const auto read = [&]() -> absl::StatusOr<std::string> {
      SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
      SS_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                          ReadSafetensorsHeader(file));
      for (const SafetensorsTensor& tensor : header.tensors) {
        if (tensor.name != name) continue;
        return ckpt::ReadFile(path).substr(tensor.begin,
                                           tensor.end - tensor.begin);
      }
      return absl::NotFoundError(name);
    };
    const auto found = read();
    EXPECT_OK(found);
    return found.value_or("");
  }

  // A tensor of a rank's module in "megatron".
  std::string ModuleTensorOf(const std::string& rank,
                             const std::string& name) const {
    const auto tree = TorchTree::Read(FileOf(rank));
    EXPECT_OK(tree);
    return tree.ok() ? tree->At(tree->root["model"][name]).bytes : "";
  }

  void ChangeConfig(const std::string& folder, const json& change) const {
    const std::string path = Path(folder + "/config.json");
    json config = json::parse(ckpt::ReadFile(path));
    config.update(change);
    ckpt::WriteFile(path, config.dump());
  }
};

// Lane i of a head goes with lane i + width / 2 in all formats: no rows change
// places, and a checkpoint that says otherwise is refused.
TEST_F(BugKindsOfFormats, B07RotaryLanesKeepTheirOrderBothWays) {
  ModelConfig model = LlamaModel();
  model.kv_channels = 8;
  ASSERT_OK(WriteSynth(Path("run"), model, {}));
  ASSERT_OK(Export("run", "hf", HuggingFace()));
  EXPECT_EQ(SafetensorOf("hf", "model.layers.1.self_attn.k_proj.weight"),
            Rows("layers.1.attention.k.weight", 0, 16, 16));
  ASSERT_OK(Export("hf", "megatron", InF32({.tensor = 2})));
  const std::string tensor = "decoder.layers.1.self_attention.linear_qkv.";
  const auto tree =
      TorchTree::Read(Path("megatron/release/mp_rank_01/model_optim_rng.pt"));
  ASSERT_OK(tree);
  // Heads 2 and 3, and the one that they attend to.
  EXPECT_EQ(tree->At(tree->root["model"][tensor + "weight"]).bytes,
            Rows("layers.1.attention.q.weight", 16, 32, 16) +
                Rows("layers.1.attention.k.weight", 8, 16, 16) +
                Rows("layers.1.attention.v.weight", 8, 16, 16));
  ASSERT_OK(Export("megatron", "back", HuggingFace()));
  EXPECT_TRUE(Snapshot(Path("back")) == Snapshot(Path("hf")));
}

TEST_F(BugKindsOfFormats, B07AnotherOrderOfLanesIsTold) {
  ModelConfig model = LlamaModel();
  model.rotary_interleaved = true;
  Make(model, {});
  const json args = ArgsOf("megatron");
  EXPECT_EQ(args["rotary_interleaved"], true);
  ASSERT_OK_AND_ASSIGN(const MegatronArgs read, ParseMegatronArgs(args, {}));
  EXPECT_TRUE(read.model.rotary_interleaved);
  // Hugging Face's models have the other one.
  EXPECT_THAT(Export("run", "hf", HuggingFace()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rotary_interleaved")));
  ASSERT_OK(ckpt::RemoveTree(Path("run")));
  ASSERT_OK(WriteRun(model, {{"model", {{"rotary_interleaved", "odd"}}}}));
  EXPECT_THAT(
      Export("run", "copy", HuggingFace()),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rotary_interleaved")));
}

// Six layers as 1, 2, 2, 1; read without a word about stages.
TEST_F(BugKindsOfFormats, B14StagesOfTheSourceDoNotReachTheTarget) {
  ModelConfig model = GptModel();
  model.num_layers = 6;
  ASSERT_OK(WriteSynth(Path("run"), model,
                       {.pipeline = 4, .stage_layers = {1, 2, 2, 1}}));
  for (const Format format : {Format::kMegatron, Format::kTorchDist}) {
    const std::string name(InfoOf(format).name);
    Layout wide = {.pipeline = 4};
    wide.first_stage_layers = wide.last_stage_layers = 1;
    ASSERT_OK(Export("run", name, {.layout = wide, .to = format}));
    EXPECT_EQ(ArgsOf(name)["decoder_first_pipeline_num_layers"], 1);
    ASSERT_OK(Export(name, name + "-back", {.to = format}));
    ASSERT_OK(Export("run", name + "-direct", {.to = format}));
    EXPECT_TRUE(Snapshot(Path(name + "-back")) ==
                Snapshot(Path(name + "-direct")));
    const json args = ArgsOf(name + "-back");
    EXPECT_EQ(args["pipeline_model_parallel_size"], 1);
    EXPECT_EQ(args["decoder_first_pipeline_num_layers"], json());
    EXPECT_EQ(args["decoder_last_pipeline_num_layers"], json());
    ExpectEqual(name + "-back");
  }
}

TEST_F(BugKindsOfFormats, B14LayersBeyondThoseOfTheModelAreRefused) {
  ASSERT_OK(WriteSynth(Path("run"), LlamaModel(), {}));
  ASSERT_OK(Export("run", "hf", HuggingFace()));
  ChangeConfig("hf", {{"num_hidden_layers", 3}});
  EXPECT_THAT(Open("hf"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("model.layers.3."),
                                         HasSubstr("3 layers"))));
}

// A rank's matrix has its gate rows, then its up rows; the stored tensors are
// two, whatever way they go.
TEST_F(BugKindsOfFormats, B20GateAndUpRowsAreReorderedOnceEachWay) {
  ModelConfig model = LlamaModel();
  model.ffn_hidden_size = 8;
  ASSERT_OK(WriteSynth(Path("run"), model, {}));
  ASSERT_OK(Export("run", "megatron", InF32({.tensor = 2})));
  EXPECT_EQ(
      ModuleTensorOf("mp_rank_01", "decoder.layers.2.mlp.linear_fc1.weight"),
      Rows("layers.2.mlp.gate.weight", 4, 8, 16) +
          Rows("layers.2.mlp.up.weight", 4, 8, 16));
  ASSERT_OK(Export("megatron", "twice", InF32({.tensor = 2})));
  EXPECT_TRUE(Snapshot(Path("twice")) == Snapshot(Path("megatron")));
  ASSERT_OK(Export("megatron", "hf", HuggingFace()));
  EXPECT_EQ(SafetensorOf("hf", "model.layers.2.mlp.gate_proj.weight"),
            Rows("layers.2.mlp.gate.weight", 0, 8, 16));
  EXPECT_EQ(SafetensorOf("hf", "model.layers.2.mlp.up_proj.weight"),
            Rows("layers.2.mlp.up.weight", 0, 8, 16));
}

// Fused kernels want the rows in turn, and a run with them saves them so.
TEST_F(BugKindsOfFormats, B20RowsInBlocksAreRefusedByTheirArgument) {
  Make(MixtureModel(), {});
  json args = ArgsOf("megatron");
  args["moe_mlp_glu_interleave_size"] = nullptr;
  EXPECT_OK(ParseMegatronArgs(args, {}));
  args["moe_mlp_glu_interleave_size"] = 2;
  EXPECT_THAT(ParseMegatronArgs(args, {}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("moe_mlp_glu_interleave_size is 2")));
}

// What is there, what is asked for, and whether the run was to save it.
TEST_F(BugKindsOfFormats, B39OptimizerStateIsThereIfItIsAndIsAskedFor) {
  for (const json& not_saved : {json(), json(true)}) {
    ASSERT_OK(WriteSynth(Path("run"), GptModel(), {}));
    ASSERT_OK(Export("run", "made", Layout{}));
    json args = ArgsOf("made");
    args["no_save_optim"] = not_saved;
    ASSERT_OK(ckpt::RemoveTree(Path("run")));
    ASSERT_OK(WriteRun(GptModel(), {{"megatron", {{"args", args}}}}));
    for (const bool stored : {false, true}) {
      ASSERT_OK(Export("run", "stored", {.weights_only = !stored}));
      for (const bool asked : {false, true}) {
        SCOPED_TRACE(absl::StrCat(not_saved.dump(), stored, asked));
        ASSERT_OK(Export("stored", "copy", {.weights_only = !asked}));
        ASSERT_OK_AND_ASSIGN(const OpenedSource copy, Open("copy"));
        const bool has = stored && asked;
        EXPECT_EQ(copy.reader->FindTensor("final_norm.weight", "exp_avg").ok(),
                  has);
        EXPECT_EQ(ArgsOf("copy")["no_save_optim"], has ? json() : json(true));
        if (has) ExpectEqual("copy");
        ASSERT_OK(ckpt::RemoveTree(Path("copy")));
      }
      ASSERT_OK(ckpt::RemoveTree(Path("stored")));
    }
    for (const char* name : {"run", "made"}) {
      ASSERT_OK(ckpt::RemoveTree(Path(name)));
    }
  }
}

// The last stage has the tied matrix under its other name, with a master and
// moments.
TEST_F(BugKindsOfFormats, B55BothNamesOfATiedMatrixHaveWeightAndState) {
  Make(GptModel(), Stages(2));
  const std::string tensor = "embedding.word.weight";
  const auto first = TorchTree::Read(FileOf("mp_rank_00_000"));
  const auto last = TorchTree::Read(FileOf("mp_rank_00_001"));
  ASSERT_OK(first);
  ASSERT_OK(last);
  EXPECT_EQ(
      first->At(first->root["model"]["embedding.word_embeddings.weight"]).bytes,
      last->At(last->root["model"]["output_layer.weight"]).bytes);
  // Of those that decay it is the first one there, the last one here.
  const auto& masters = last->root["optimizer"]["fp32_from_fp16_params"][0];
  const std::string number = absl::StrCat("#", masters.size() - 1);
  const std::string master = Rows(tensor, 0, 251, 16);
  EXPECT_EQ(last->At(masters.back()).bytes.substr(0, master.size()), master);
  for (const char* role : {"exp_avg", "exp_avg_sq"}) {
    const std::string moment = Rows(tensor, 0, 251, 16, role);
    const auto state = [&](const TorchTree& tree, const std::string& key) {
      return tree.At(tree.root["optimizer"]["optimizer"]["state"][key][role])
          .bytes.substr(0, moment.size());
    };
    EXPECT_EQ(state(*first, "#0"), moment);
    EXPECT_EQ(state(*last, number), moment);
  }
}

TEST_F(BugKindsOfFormats,
       B56TiedMatricesWithoutTheirSecondNameAreToldFromLosses) {
  ModelConfig model = LlamaModel();
  model.untie_embeddings_and_output_weights = false;
  ASSERT_OK(WriteSynth(Path("run"), model, {}));
  ASSERT_OK(Export("run", "hf", HuggingFace()));
  EXPECT_OK(Open("hf"));
  ChangeConfig("hf", {{"tie_word_embeddings", false}});
  EXPECT_THAT(
      Open("hf"),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("\"lm_head.weight\""), HasSubstr("is missing"),
                     HasSubstr("\"model.embed_tokens.weight\""),
                     HasSubstr("tie_word_embeddings"))));
  std::filesystem::remove(Path("hf/config.json"));
  EXPECT_THAT(Open("hf"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("no config.json"),
                                         HasSubstr("--generic"))));
}

json GroupWith(double wd_mult, bool is_decoupled, double max_lr,
               double min_lr) {
  return {{"wd_mult", wd_mult},  {"lr_mult", 1.0},
          {"max_lr", max_lr},    {"is_expert_parallel", false},
          {"min_lr", min_lr},    {"is_decoupled_lr", is_decoupled},
          {"weight_decay", 0.1}, {"lr", max_lr}};
}

TEST_F(BugKindsOfFormats, B69BoundsOfAGroupOfParametersStayItsOwn) {
  const json groups = {GroupWith(1, false, 1.0, 0.1),
                       GroupWith(0, false, 5.0, 0.5)};
  ASSERT_OK(WriteRun(GptModel(), {{"megatron", {{"param_groups", groups}}}}));
  for (const Format format : {Format::kMegatron, Format::kTorchDist}) {
    const std::string name(InfoOf(format).name);
    ASSERT_OK(Export("run", name, {.layout = Stages(2), .to = format}));
    const json kept = StateOf(name)["megatron"]["param_groups"];
    ASSERT_EQ(kept.size(), 2);
    for (const json& group : kept) {
      const bool decays = group["wd_mult"] == 1;
      EXPECT_EQ(group["max_lr"], decays ? 1.0 : 5.0);
      EXPECT_EQ(group["min_lr"], decays ? 0.1 : 0.5);
    }
  }
}

// Of two groups that decay nobody knows who is in which.
TEST_F(BugKindsOfFormats, B69GroupsThatWouldBecomeOneAreRefused) {
  const json groups = {GroupWith(1, false, 1.0, 0.1),
                       GroupWith(0, false, 1.0, 0.1),
                       GroupWith(1, true, 5.0, 0.5)};
  ASSERT_OK(WriteRun(GptModel(), {{"megatron", {{"param_groups", groups}}}}));
  EXPECT_THAT(Export("run", "copy", Stages(2)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("param_groups"), HasSubstr("max_lr"),
                             HasSubstr("1.0"), HasSubstr("5.0"))));
  EXPECT_FALSE(*ckpt::Exists(Path("copy")));
  EXPECT_OK(Export("run", "weights", {.weights_only = true}));
}

TEST_F(BugKindsOfFormats, B124TheTargetIsWhatTheUserSaysThenTheSourceTells) {
  Make(GptModel(), {.tensor = 2, .data = 3, .distributed_optimizer = true});
  json args = ArgsOf("megatron");
  args["global_batch_size"] = 24;
  args["vocab_size"] = 260;
  ASSERT_OK(ckpt::RemoveTree(Path("run")));
  ModelConfig model = GptModel();
  model.vocab_size = model.padded_vocab_size = 260;
  ASSERT_OK(WriteRun(model, {{"megatron", {{"args", args}}}}));
  ASSERT_OK(Export("run", "wide", {.layout = {.tensor = 4}}));
  const json wide = ArgsOf("wide");
  EXPECT_EQ(wide["tensor_model_parallel_size"], 4);
  EXPECT_EQ(wide["global_batch_size"], 24);
  EXPECT_EQ(wide["padded_vocab_size"], 512);
  // What is not said of the layout is 1, not what the source had.
  EXPECT_EQ(wide["data_parallel_size"], 1);
  EXPECT_EQ(wide["world_size"], 4);
  EXPECT_EQ(wide["use_distributed_optimizer"], false);
  ASSERT_OK(Export("wide", "plain", Layout{}));
  EXPECT_EQ(ArgsOf("plain")["tensor_model_parallel_size"], 1);
  EXPECT_EQ(ArgsOf("plain")["padded_vocab_size"], 384);
}

// The weights lie beside masters that they are rounded from.
TEST_F(BugKindsOfFormats, B129RoundingIsToldFromTwoRowsThatChangedPlaces) {
  Make(LlamaModel(), {.tensor = 2});
  ASSERT_OK_AND_ASSIGN(TorchTree tree, TorchTree::Read(FileOf("mp_rank_01")));
  ASSERT_OK(tree.Write(FileOf("mp_rank_01")));
  ExpectEqual("megatron");
  const auto& value =
      tree.root["model"]["decoder.layers.1.mlp.linear_fc2.weight"];
  std::string& bytes = tree.tensors[value["tensor"].get<size_t>()].bytes;
  const size_t row = 12 * 2;
  bytes = bytes.substr(row, row) + bytes.substr(0, row) + bytes.substr(2 * row);
  ASSERT_OK(tree.Write(FileOf("mp_rank_01")));
  ASSERT_OK_AND_ASSIGN(const OpenedSource told, Open("megatron"));
  EXPECT_THAT(told.notes,
              ::testing::Contains(HasSubstr("not its master, rounded: "
                                            "layers.1.mlp.down.weight")));
  EXPECT_THAT(KeptWeights(*told.reader),
              ::testing::ElementsAre("layers.1.mlp.down.weight"));
}

}  // namespace
}  // namespace shardshift::reshard
