// Models as distributed checkpoints, there and back.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_model_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/exec/export.h"
#include "reshard/formats/dcp_metadata.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/plan_export.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/dcp_model_sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ckpt::DType;
using nlohmann::json;
using ::testing::HasSubstr;

class DcpModelExportTest : public DcpModelTest {
 protected:
  DcpModelExportTest() : out_(ckpt::InMemory()) {}

  std::string Out(const std::string& name) const {
    return ckpt::JoinPath(out_.path(), name);
  }

  // Writes what `path` has to the new directory Out(name).
  absl::Status Export(const std::string& path, const std::string& name,
                      const CopyChoice& choice = {}) const {
    const auto source = OpenSource(path, {.fingerprints = true});
    if (!source.ok()) return source.status();
    const auto plan = PlanExport(*source, Format::kDcp, {.choice = choice});
    if (!plan.ok()) return plan.status();
    const auto report = ExportCheckpoint(*source->reader, Out(name), *plan, {});
    return report.ok() ? report->proof : report.status();
  }

  const ckpt::TempDir out_;
};

// GPT-2's matrices come out as views of their transposes.
TEST_F(DcpModelExportTest, WhatIsWrittenReadsAsTheSame) {
  for (const std::string model : {"gpt2", "llama", "mixtral", "qwen3_moe"}) {
    WriteConfig(model);
    WriteShards(TrainingOf(model, "model.", "optim.state."));
    ASSERT_OK(Export(dir_.path(), model));
    ASSERT_OK_AND_ASSIGN(const OpenedSource source,
                         OpenSource(Out(model), {.verify = true}));
    EXPECT_EQ(source.format, Format::kDcp);
    ExpectTraining(source, model);
    ASSERT_OK_AND_ASSIGN(const OpenedSource before, Open());
    const json state = json::parse(source.reader->state());
    EXPECT_EQ(state["progress"],
              json::parse(before.reader->state())["progress"]);
    // Once more gives the same bytes.
    ASSERT_OK(Export(Out(model), model + "-again"));
    for (const char* file : {".metadata", "__0_0.distcp", "config.json"}) {
      EXPECT_TRUE(ckpt::ReadFile(Out(absl::StrCat(model, "/", file))) ==
                  ckpt::ReadFile(Out(absl::StrCat(model, "-again/", file))))
          << file;
    }
  }
}

TEST_F(DcpModelExportTest, ATiedModelHasItsOutputLayerOnce) {
  WriteConfig("gpt2");
  WriteShards(TrainingOf("gpt2", "model.", "optim.state."));
  ASSERT_OK(Export(dir_.path(), "written"));
  ASSERT_OK_AND_ASSIGN(const DcpMetadata metadata,
                       ReadDcpMetadata(Out("written")));
  const DcpTensor* embedding =
      metadata.FindTensor("model.transformer.wte.weight");
  const DcpTensor* head = metadata.FindTensor("model.lm_head.weight");
  ASSERT_NE(embedding, nullptr);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->shape, embedding->shape);
  ASSERT_EQ(head->chunks.size(), 1);
  EXPECT_EQ(head->chunks[0].place.range.offset_bytes,
            embedding->chunks[0].place.range.offset_bytes);
  EXPECT_TRUE(metadata.bytes.empty());
}

TEST_F(DcpModelExportTest, WeightsMayBeOfAnotherDType) {
  WriteConfig("llama");
  WriteShards(TrainingOf("llama", "model.", "optim.state."));
  ASSERT_OK(Export(dir_.path(), "written",
                   {.weights_only = true, .dtype = DType::kBF16}));
  ASSERT_OK_AND_ASSIGN(const OpenedSource source,
                       OpenSource(Out("written"), {}));
  for (const ckpt::Tensor& tensor : source.reader->table().tensors) {
    EXPECT_EQ(tensor.dtype, DType::kBF16);
    EXPECT_EQ(tensor.role, "weight");
  }
  EXPECT_EQ(json::parse(ckpt::ReadFile(Out("written/config.json")))["dtype"],
            "bfloat16");
  EXPECT_THAT(Export(dir_.path(), "other", {.dtype = DType::kBF16}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("--dtype")));
  EXPECT_THAT(Export(dir_.path(), "other", {.select = "layers.*"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("--select")));
}

}  // namespace
}  // namespace shardshift::reshard
