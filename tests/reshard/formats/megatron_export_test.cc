// Checkpoints of ours as Megatron's, and back.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/export.h"
#include "reshard/exec/synth.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/plan_export.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;

class MegatronExportTest : public ::testing::TestWithParam<Format> {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  absl::StatusOr<OpenedSource> Open(const std::string& name,
                                    bool weights_only = false) const {
    OpenOptions options;
    options.foreign.weights_only = weights_only;
    options.verify = true;
    options.fingerprints = true;
    return OpenSource(Path(name), options);
  }

  absl::StatusOr<ReshardReport> Export(const std::string& from,
                                       const std::string& to,
                                       const ExportChoice& choice) const {
    SS_ASSIGN_OR_RETURN(const OpenedSource source, Open(from));
    SS_ASSIGN_OR_RETURN(const ExportPlan plan,
                        PlanExport(source, GetParam(), choice));
    SS_ASSIGN_OR_RETURN(ReshardReport report,
                        ExportCheckpoint(*source.reader, Path(to), plan,
                                         {.memory_bytes = 256 << 10}));
    SS_RETURN_IF_ERROR(report.proof);
    return report;
  }

  ckpt::Digest128 RootOf(const std::string& name) const {
    const absl::StatusOr<OpenedSource> source = Open(name);
    EXPECT_OK(source);
    return source.ok() ? ckpt::RootFingerprintOf(source->reader->table())
                       : ckpt::Digest128{};
  }

  const ckpt::TempDir directory_;
};

INSTANTIATE_TEST_SUITE_P(Formats, MegatronExportTest,
                         ::testing::Values(Format::kMegatron,
                                           Format::kTorchDist),
                         [](const auto& param_info) {
                           return std::string(InfoOf(param_info.param).name);
                         });

// What the format can hold of a random layout.
Layout Sayable(Layout layout) {
  layout.expert_tensor = 0;
  layout.stage_layers.clear();
  return layout;
}

TEST_P(MegatronExportTest, EveryLayoutComesBack) {
  std::mt19937 random(11);
  int done = 0;
  for (int i = 0; i < 20; ++i) {
    const bool is_mixture = i % 2 == 1;
    const ModelConfig model =
        is_mixture ? RandomMixture(random) : RandomModel(random);
    const Layout from = is_mixture ? RandomWideLayout(model, random)
                                   : RandomLayout(model, random);
    const Layout to = Sayable(is_mixture ? RandomWideLayout(model, random)
                                         : RandomLayout(model, random));
    if (!Validate(model, to).ok()) continue;
    const std::string name = absl::StrCat("run", i);
    SCOPED_TRACE(absl::StrCat(i, ": ", ToString(from), " to ", ToString(to)));
    ASSERT_OK(WriteSynth(Path(name), model, from));
    ExportChoice choice;
    choice.layout = to;
    if (i % 3 == 0) choice.choice.dtype = ckpt::DType::kBF16;
    const std::string copy = absl::StrCat(name, "m");
    const absl::StatusOr<ReshardReport> report = Export(name, copy, choice);
    // Models that Megatron's arguments cannot describe.
    if (absl::IsFailedPrecondition(report.status())) continue;
    ASSERT_OK(report);
    EXPECT_EQ(RootOf(copy), RootOf(name));
    ++done;
  }
  EXPECT_GT(done, 10);
}

// A rank's file may have no value at all.
TEST_P(MegatronExportTest, RanksOfNothingButPaddingHaveAFile) {
  ModelConfig model = LlamaModel();
  model.num_layers = 1;
  model.vocab_size = 7;
  ASSERT_OK(WriteSynth(Path("run"), model, {}));
  ExportChoice choice;
  choice.layout.tensor = 2;
  choice.layout.pipeline = 2;
  choice.layout.account_for_embedding = true;
  for (const bool weights_only : {false, true}) {
    choice.choice.weights_only = weights_only;
    choice.layout.distributed_optimizer = !weights_only;
    const std::string copy = absl::StrCat("copy", weights_only);
    ASSERT_OK(Export("run", copy, choice));
    ASSERT_OK(Open(copy));
    if (!weights_only) {
      EXPECT_EQ(RootOf(copy), RootOf("run"));
    }
  }
  ModelConfig mixture = MixtureModel();
  mixture.num_layers = 1;
  ASSERT_OK(WriteSynth(Path("mixture"), mixture, {}));
  choice = {};
  choice.layout.pipeline = 2;
  choice.layout.expert = 2;
  choice.layout.data = 2;
  choice.layout.account_for_embedding = true;
  choice.layout.distributed_optimizer = true;
  ASSERT_OK(Export("mixture", "experts", choice));
  EXPECT_EQ(RootOf("experts"), RootOf("mixture"));
}

TEST_P(MegatronExportTest, TheSourcesLayoutDoesNotShow) {
  Layout wide;
  wide.tensor = 2;
  wide.pipeline = 2;
  wide.distributed_optimizer = true;
  wide.data = 3;
  ASSERT_OK(WriteSynth(Path("a"), GptModel(), {}));
  ASSERT_OK(WriteSynth(Path("b"), GptModel(), wide));
  ExportChoice choice;
  choice.layout = wide;
  ASSERT_OK(Export("a", "ma", choice));
  ASSERT_OK(Export("b", "mb", choice));
  // And so back again.
  ASSERT_OK(Export("ma", "mc", choice));
  const auto files = Snapshot(Path("ma"));
  EXPECT_TRUE(Snapshot(Path("mb")) == files);
  EXPECT_TRUE(Snapshot(Path("mc")) == files);
}

TEST_P(MegatronExportTest, WeightsAreTheMastersRounded) {
  ASSERT_OK(WriteSynth(Path("run"), LlamaModel(), {}));
  ExportChoice choice;
  choice.layout.tensor = 2;
  choice.choice.dtype = ckpt::DType::kBF16;
  ASSERT_OK(Export("run", "both", choice));
  choice.choice.weights_only = true;
  ASSERT_OK(Export("run", "weights", choice));
  ASSERT_OK_AND_ASSIGN(const OpenedSource both, Open("both", true));
  ASSERT_OK_AND_ASSIGN(const OpenedSource weights, Open("weights"));
  EXPECT_EQ(both.reader->table().tensors.front().dtype, ckpt::DType::kBF16);
  EXPECT_EQ(ckpt::RootFingerprintOf(both.reader->table()),
            ckpt::RootFingerprintOf(weights.reader->table()));
}

TEST_P(MegatronExportTest, ArgumentsAreThoseOfTheTarget) {
  ASSERT_OK(WriteSynth(Path("run"), MixtureModel(), {}));
  ExportChoice choice;
  choice.layout.tensor = 2;
  choice.layout.pipeline = 2;
  choice.layout.virtual_stages = 2;
  choice.layout.expert = 2;
  choice.layout.data = 2;
  choice.layout.distributed_optimizer = true;
  ASSERT_OK(Export("run", "copy", choice));
  ASSERT_OK_AND_ASSIGN(const OpenedSource copy, Open("copy"));
  const auto state = nlohmann::json::parse(copy.reader->state());
  const nlohmann::json& args = state["megatron"]["args"];
  EXPECT_EQ(args["tensor_model_parallel_size"], 2);
  EXPECT_EQ(args["pipeline_model_parallel_size"], 2);
  EXPECT_EQ(args["virtual_pipeline_model_parallel_size"], 2);
  EXPECT_EQ(args["expert_model_parallel_size"], 2);
  EXPECT_EQ(args["data_parallel_size"], 2);
  EXPECT_EQ(args["world_size"], 8);
  EXPECT_EQ(args["use_distributed_optimizer"], true);
  EXPECT_EQ(args["vocab_size"], 251);
  // Megatron's rule: a multiple of 128 times TP.
  EXPECT_EQ(args["padded_vocab_size"], 256);
  EXPECT_EQ(state["model"]["vocab_size"], 251);
  // A group for each kind of parameter: experts' matrices, and of the others
  // matrices and vectors.
  EXPECT_EQ(state["megatron"]["param_groups"].size(), 3);
}

TEST_P(MegatronExportTest, ANameFromTheStateThatWouldRunIsNotWritten) {
  nlohmann::json state = SampleState(GptModel());
  state["megatron"]["common"]["opt_param_scheduler"] = {
      {"py", "call"}, {"name", "os system"}, {"args", {"true"}}};
  ASSERT_OK(WriteSynthCheckpoint(Path("run"), 3, GptModel(), {}, state,
                                 SampleRecord({})));
  EXPECT_THAT(
      Export("run", "copy", {}),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("os.system")));
  EXPECT_FALSE(*ckpt::Exists(Path("copy")));
}

TEST_P(MegatronExportTest, WhatCannotBeSaidIsRefused) {
  ASSERT_OK(WriteSynth(Path("run"), GptModel(), {}));
  ExportChoice choice;
  choice.layout.pipeline = 2;
  choice.layout.stage_layers = {1, 3};
  EXPECT_THAT(Export("run", "copy", choice),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("--pipeline-model-parallel-layout")));
  choice.layout = {};
  choice.layout.tensor = 3;
  EXPECT_THAT(Export("run", "copy", choice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tensor-model-parallel-size")));
  choice = {};
  choice.choice.select = "layers.0.*";
  EXPECT_THAT(
      Export("run", "copy", choice),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--select")));
  choice = {};
  choice.choice.dtype = ckpt::DType::kF8E4M3;
  EXPECT_THAT(Export("run", "copy", choice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--dtype F32, BF16 or F16")));
  ModelConfig window = LlamaModel();
  window.sliding_window = 8;
  ASSERT_OK(WriteSynth(Path("window"), window, {}));
  EXPECT_THAT(Export("window", "copy", {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("sliding_window is 8")));
}

}  // namespace
}  // namespace shardshift::reshard
