// Layouts with names, for three families of models: what `reshard` makes of a
// checkpoint of any of them for any other is what a trainer saves.
// With SHARDSHIFT_SWEEP all ordered pairs, else one after another.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/reshard.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/owner_oracle.h"
#include "tests/reshard/sample.h"
#include "tests/reshard/tensor_oracle.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

struct NamedLayout {
  std::string name;
  Layout layout;
};

// Of models with 4 layers. "first", "last": layers of that stage; "chunk":
// layers of a virtual stage; "stages": of each.
std::vector<NamedLayout> PlainLayouts() {
  return {
      {"one", {}},
      {"tp2", {.tensor = 2}},
      {"tp4", {.tensor = 4}},
      {"tp8", {.tensor = 8}},
      {"dp2", {.data = 2}},
      {"dp5", {.data = 5}},
      {"dp2-dist", {.data = 2, .distributed_optimizer = true}},
      {"dp3-dist", {.data = 3, .distributed_optimizer = true}},
      {"dp5-dist", {.data = 5, .distributed_optimizer = true}},
      {"dp16-dist", {.data = 16, .distributed_optimizer = true}},
      {"pp2", {.pipeline = 2}},
      {"pp4", {.pipeline = 4}},
      {"tp2-dp2", {.tensor = 2, .data = 2}},
      {"tp2-dp2-dist", {.tensor = 2, .data = 2, .distributed_optimizer = true}},
      {"tp4-dp3-dist", {.tensor = 4, .data = 3, .distributed_optimizer = true}},
      {"tp8-dp2-dist", {.tensor = 8, .data = 2, .distributed_optimizer = true}},
      {"tp2-pp2", {.tensor = 2, .pipeline = 2}},
      {"tp4-pp4", {.tensor = 4, .pipeline = 4}},
      {"tp2-pp2-dp2", {.tensor = 2, .pipeline = 2, .data = 2}},
      {"tp2-pp2-dp2-dist",
       {.tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true}},
      {"tp4-pp2-dp2-dist",
       {.tensor = 4, .pipeline = 2, .data = 2, .distributed_optimizer = true}},
      {"tp2-pp4-dp4-dist",
       {.tensor = 2, .pipeline = 4, .data = 4, .distributed_optimizer = true}},
      {"pp4-dp3-dist",
       {.pipeline = 4, .data = 3, .distributed_optimizer = true}},
  };
}

std::vector<NamedLayout> UnevenLayouts() {
  return {
      {"pp3-dp2-first1-last1",
       {.pipeline = 3,
        .data = 2,
        .first_stage_layers = 1,
        .last_stage_layers = 1}},
      {"pp3-first2", {.pipeline = 3, .first_stage_layers = 2}},
      {"tp2-pp2-dp2-dist-last3",
       {.tensor = 2,
        .pipeline = 2,
        .data = 2,
        .distributed_optimizer = true,
        .last_stage_layers = 3}},
      {"pp5-embedding", {.pipeline = 5, .account_for_embedding = true}},
      {"pp3-dp2-dist-embedding-loss",
       {.pipeline = 3,
        .data = 2,
        .distributed_optimizer = true,
        .account_for_embedding = true,
        .account_for_loss = true}},
      {"pp3-dp2-dist-stages2.0.2",
       {.pipeline = 3,
        .data = 2,
        .distributed_optimizer = true,
        .stage_layers = {2, 0, 2}}},
      {"tp2-pp2-stages0.1.3.0",
       {.tensor = 2, .pipeline = 2, .stage_layers = {0, 1, 3, 0}}},
  };
}

std::vector<NamedLayout> InterleavedLayouts() {
  return {
      {"pp2-vpp2", {.pipeline = 2, .virtual_stages = 2}},
      {"tp2-pp2-vpp2-dp2",
       {.tensor = 2, .pipeline = 2, .data = 2, .virtual_stages = 2}},
      {"pp3-vpp2-dp3-dist-embedding-loss",
       {.pipeline = 3,
        .data = 3,
        .distributed_optimizer = true,
        .virtual_stages = 2,
        .account_for_embedding = true,
        .account_for_loss = true}},
      {"pp2-dp2-dist-chunk1",
       {.pipeline = 2,
        .data = 2,
        .distributed_optimizer = true,
        .layers_per_virtual_stage = 1}},
      {"pp4-dp2-dist-stages1.1.0.0.0.1.1.0",
       {.pipeline = 4,
        .data = 2,
        .distributed_optimizer = true,
        .stage_layers = {1, 1, 0, 0, 0, 1, 1, 0}}},
  };
}

std::vector<NamedLayout> ExpertLayouts() {
  return {
      {"dp2-ep2", {.data = 2, .expert = 2}},
      {"dp4-dist-ep2", {.data = 4, .distributed_optimizer = true, .expert = 2}},
      {"dp4-dist-ep4", {.data = 4, .distributed_optimizer = true, .expert = 4}},
      {"tp2-dp2-etp1", {.tensor = 2, .data = 2, .expert_tensor = 1}},
      {"dp2-dist-etp2",
       {.data = 2, .distributed_optimizer = true, .expert_tensor = 2}},
      {"tp4-ep4-etp1", {.tensor = 4, .expert = 4, .expert_tensor = 1}},
      {"tp2-dp2-dist-ep2-etp1",
       {.tensor = 2,
        .data = 2,
        .distributed_optimizer = true,
        .expert = 2,
        .expert_tensor = 1}},
      {"tp2-pp2-dp2-ep2", {.tensor = 2, .pipeline = 2, .data = 2, .expert = 2}},
      {"pp4-dp2-dist-ep2",
       {.pipeline = 4, .data = 2, .distributed_optimizer = true, .expert = 2}},
      {"tp4-pp2-dp2-dist-ep2-etp2",
       {.tensor = 4,
        .pipeline = 2,
        .data = 2,
        .distributed_optimizer = true,
        .expert = 2,
        .expert_tensor = 2}},
      {"tp2-pp2-vpp2-dp2-dist-ep4-etp1",
       {.tensor = 2,
        .pipeline = 2,
        .data = 2,
        .distributed_optimizer = true,
        .expert = 4,
        .expert_tensor = 1,
        .virtual_stages = 2}},
      {"tp2-pp3-dp3-dist-ep2-etp1-stages2.0.2",
       {.tensor = 2,
        .pipeline = 3,
        .data = 3,
        .distributed_optimizer = true,
        .expert = 2,
        .expert_tensor = 1,
        .stage_layers = {2, 0, 2}}},
  };
}

struct Family {
  std::string name;
  ModelConfig model;
};

Family MakeFamily(const std::string& name, ModelConfig model) {
  model.num_attention_heads = 8;
  if (model.num_query_groups == 4) model.num_query_groups = 8;
  if (model.has_experts()) model.moe_shared_expert_intermediate_size = 16;
  return {name, model};
}

std::vector<NamedLayout> LayoutsOf(const ModelConfig& model) {
  std::vector<NamedLayout> layouts;
  for (const auto& kind : {PlainLayouts(), UnevenLayouts(),
                           InterleavedLayouts(), ExpertLayouts()}) {
    for (const NamedLayout& named : kind) {
      if (Validate(model, named.layout).ok()) layouts.push_back(named);
    }
  }
  return layouts;
}

class NamedLayouts : public ::testing::TestWithParam<Family> {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  void Reshard(const std::string& from, const std::string& to,
               const Layout& layout) const {
    ASSERT_OK_AND_ASSIGN(const auto source,
                         ckpt::Reader::Open(StepOf(Path(from))));
    ASSERT_OK_AND_ASSIGN(const ReshardReport report,
                         ReshardCheckpoint(*source, Path(to), layout, {}));
    EXPECT_OK(report.proof);
  }

  const ModelConfig model_ = GetParam().model;
  const std::vector<NamedLayout> layouts_ = LayoutsOf(model_);
  const ckpt::TempDir directory_;
};

TEST_P(NamedLayouts, OneAfterAnotherHoldWhatTheOraclesSay) {
  EXPECT_GE(layouts_.size(), model_.has_experts() ? 42 : 30);
  ASSERT_OK(WriteSynth(Path("start"), model_, layouts_.front().layout));
  std::string last = "start";
  for (const NamedLayout& named : layouts_) {
    SCOPED_TRACE(named.name);
    Reshard(last, named.name, named.layout);
    last = named.name;
    ASSERT_OK_AND_ASSIGN(const auto made,
                         ckpt::Reader::Open(StepOf(Path(last))));
    ExpectSynthTensors(*made, model_);
    ExpectPartsOfOwners(*made, model_, named.layout);
  }
  Reshard(last, "end", layouts_.front().layout);
  EXPECT_TRUE(Snapshot(Path("end")) == Snapshot(Path("start")));
}

#ifdef SHARDSHIFT_SWEEP
// There and back again, too.
TEST_P(NamedLayouts, ReshardIntoOneAnotherBitForBit) {
  std::vector<std::map<std::string, std::string>> saved;
  for (const NamedLayout& named : layouts_) {
    ASSERT_OK(WriteSynth(Path(named.name), model_, named.layout));
    saved.push_back(Snapshot(Path(named.name)));
  }
  for (const NamedLayout& from : layouts_) {
    for (size_t to = 0; to < layouts_.size(); ++to) {
      SCOPED_TRACE(from.name + " to " + layouts_[to].name);
      Reshard(from.name, "made", layouts_[to].layout);
      EXPECT_TRUE(Snapshot(Path("made")) == saved[to]);
      std::filesystem::remove_all(Path("made"));
    }
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Families, NamedLayouts,
                         ::testing::Values(MakeFamily("Gpt", GptModel()),
                                           MakeFamily("Llama", LlamaModel()),
                                           MakeFamily("Mixture",
                                                      MixtureModel())),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace shardshift::reshard
