// Faults that bit users of other converters, by the number of their kind: here
// those of the optimizer's state, in files of Megatron's that were changed.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/crc32.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/synth.h"
#include "reshard/formats/megatron_common.h"
#include "reshard/formats/torch_file.h"
#include "reshard/formats/zip.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/generic_sample.h"
#include "tests/reshard/formats/megatron_sample.h"
#include "tests/reshard/formats/torch_tree.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class BugKindsOfState : public MegatronSampleTest {
 protected:
  // Changes a rank's file of "megatron".
  template <typename Change>
  void Edit(const std::string& rank, Change&& change) const {
    ASSERT_OK_AND_ASSIGN(TorchTree tree, TorchTree::Read(FileOf(rank)));
    change(tree);
    ASSERT_OK(tree.Write(FileOf(rank)));
  }

  // torch's own optimizer in a rank's file.
  static ordered_json& Optimizer(TorchTree& tree) {
    return tree.root["optimizer"]["optimizer"];
  }

  // As of one that has not made a step.
  static void DropSteps(TorchTree& tree) {
    Optimizer(tree)["state"] = ordered_json::object();
    for (ordered_json& group : Optimizer(tree)["param_groups"]) {
      group.erase("step");
    }
  }
};

// As of a stage that met a parameter first that does not decay.
void SwapGroups(TorchTree& tree) {
  ordered_json& optimizer = tree.root["optimizer"]["optimizer"];
  ordered_json& groups = optimizer["param_groups"];
  std::swap(groups[0], groups[1]);
  ordered_json& masters = tree.root["optimizer"]["fp32_from_fp16_params"];
  std::swap(masters[0], masters[1]);
  ordered_json states = ordered_json::object();
  for (ordered_json& group : groups) {
    for (ordered_json& number : group["params"]) {
      const std::string old_key = absl::StrCat("#", number.get<int64_t>());
      number = states.size();
      states[absl::StrCat("#", states.size())] = optimizer["state"][old_key];
    }
  }
  optimizer["state"] = std::move(states);
}

TEST_F(BugKindsOfState, B29GroupsKeepTheirParametersWhateverTheirOrder) {
  Make(GptModel(), Stages(2));
  Edit("mp_rank_00_001", SwapGroups);
  ExpectEqual("megatron");
  ASSERT_OK(Export("megatron", "one", Layout{}));
  ExpectEqual("one");
  ASSERT_OK_AND_ASSIGN(
      TorchTree tree,
      TorchTree::Read(Path("one/iter_0000003/mp_rank_00/model_optim_rng.pt")));
  int64_t decaying = 0;
  for (const ordered_json& group : Optimizer(tree)["param_groups"]) {
    for (const ordered_json& number : group["params"]) {
      const auto& state =
          Optimizer(tree)["state"][absl::StrCat("#", number.get<int64_t>())];
      const bool is_matrix = tree.At(state["exp_avg"]).shape.size() == 2;
      EXPECT_EQ(group["weight_decay"].get<double>() != 0, is_matrix);
      decaying += is_matrix ? 1 : 0;
    }
  }
  EXPECT_EQ(decaying, 2 + 4 * 4);
}

// Names with an axis more, or a file less: every one is asked for by name.
TEST_F(BugKindsOfState, B32FilesUnderOtherNamesAreMissingOnes) {
  Make(GptModel(), {.tensor = 2, .pipeline = 2});
  const std::string step = Path("megatron/iter_0000003/");
  const std::string folder = step + "mp_rank_01_001";
  for (const char* other : {"mp_rank_01_001_000", "mp_rank_01_cp_00_001"}) {
    std::filesystem::rename(folder, step + other);
    EXPECT_THAT(Open("megatron"),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(folder),
                               HasSubstr("tensor rank 1, stage 1 of"))));
    std::filesystem::rename(step + other, folder);
  }
  std::filesystem::copy(folder, step + "mp_rank_01_001_000");
  EXPECT_THAT(Open("megatron"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("mp_rank_01_001_000"),
                             HasSubstr("ranks of another layout"))));
  std::filesystem::remove_all(step + "mp_rank_01_001_000");
  ExpectEqual("megatron");
}

TEST_F(BugKindsOfState, B33AnOptimizerWithoutAStepIsAStateAndComesBack) {
  Make(GptModel(), Stages(2));
  for (const char* rank : {"mp_rank_00_000", "mp_rank_00_001"}) {
    Edit(rank, DropSteps);
  }
  ASSERT_OK(Export("megatron", "copy", Layout{.tensor = 2}));
  for (const char* name : {"megatron", "copy"}) {
    ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open(name));
    const json state = json::parse(source.reader->state());
    EXPECT_EQ(state["progress"]["step"], 3);
    EXPECT_EQ(state["progress"]["skipped_iterations"], 3);
    size_t moments = 0;
    for (const auto& [key, values] : FloatsOf(source)) {
      if (!absl::StrContains(key, ".exp_avg")) continue;
      EXPECT_EQ(values, Floats(values.size())) << key;
      ++moments;
    }
    EXPECT_EQ(moments, 2 * LogicalTensors(GptModel()).size());
    const auto run = OpenSource(Path("run"), {});
    ASSERT_OK(run);
    const std::string master = "optim.state.layers.3.mlp.up.weight.master";
    EXPECT_EQ(FloatsOf(source).at(master), FloatsOf(*run).at(master));
  }
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open("megatron"));
  EXPECT_THAT(source.notes, Contains(HasSubstr("no step yet")));
}

// One stage is of before the first step, the other is not.
TEST_F(BugKindsOfState, B33StagesOfDifferentStepsAreRefused) {
  Make(GptModel(), Stages(2));
  Edit("mp_rank_00_001", DropSteps);
  EXPECT_THAT(Open("megatron"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("0 steps"), HasSubstr("3 for others"))));
}

// torch has no state of what never had a gradient. One number of steps is kept
// for all, so that there is no way to say so of one.
TEST_F(BugKindsOfState, B34ParametersWithoutStateAreNamed) {
  Make(GptModel(), {});
  Edit("mp_rank_00",
       [](TorchTree& tree) { Optimizer(tree)["state"].erase("#1"); });
  EXPECT_THAT(Open("megatron"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(FileOf("mp_rank_00")),
                             HasSubstr("embedding.position_embeddings.weight"),
                             HasSubstr("--weights-only"))));
  EXPECT_OK(Open("megatron", /*weights_only=*/true));
}

// Of frozen ones an optimizer has no numbers.
TEST_F(BugKindsOfState, B34NumbersAreNotGuessedWhereParametersAreFrozen) {
  Make(GptModel(), {});
  Edit("mp_rank_00", [](TorchTree& tree) {
    DropSteps(tree);
    ordered_json& numbers = Optimizer(tree)["param_groups"][0]["params"];
    numbers.erase(numbers.size() - 1);
    ordered_json& masters = tree.root["optimizer"]["fp32_from_fp16_params"][0];
    masters.erase(masters.size() - 1);
  });
  EXPECT_THAT(Open("megatron"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("param_groups[0].params has 17"),
                             HasSubstr("there are 18"))));
}

// Writes `bytes` over the first of the same length that the pickle of an
// archive has, as often as they come.
void ReplaceInPickle(const std::string& path, const std::string& from,
                     const std::string& to) {
  std::string bytes = ckpt::ReadFile(path);
  ASSERT_OK_AND_ASSIGN(const ckpt::File file, ckpt::File::OpenForRead(path));
  ASSERT_OK_AND_ASSIGN(const FileRange whole, WholeFile(file));
  ASSERT_OK_AND_ASSIGN(const ZipArchive zip, ZipArchive::Read(file, whole));
  const auto replace = [](std::string text, const std::string& a,
                          const std::string& b) {
    for (size_t at = text.find(a); at != std::string::npos;
         at = text.find(a, at + 1)) {
      text.replace(at, a.size(), b);
    }
    return text;
  };
  const auto encode = [](uint32_t crc) {
    ckpt::Encoder encoder;
    encoder.PutU32(crc);
    return encoder.bytes();
  };
  for (const ZipEntry& entry : zip.entries()) {
    if (!entry.name.ends_with("/data.pkl")) continue;
    const std::string pickle =
        bytes.substr(entry.payload.offset_bytes, entry.payload.num_bytes);
    const std::string changed = replace(pickle, from, to);
    ASSERT_NE(changed, pickle);
    bytes.replace(entry.payload.offset_bytes, changed.size(), changed);
    bytes = replace(std::move(bytes), encode(entry.crc32),
                    encode(ckpt::UpdateCrc32(0, ckpt::AsBytes(changed))));
  }
  ckpt::WriteFile(path, bytes);
}

TEST_F(BugKindsOfState, B35StateOnAnotherDeviceIsTheSameState) {
  Make(GptModel(), Stages(2));
  ReplaceInPickle(FileOf("mp_rank_00_001"), "cpu", "xpu");
  ExpectEqual("megatron");
  ASSERT_OK(Export("megatron", "again", Stages(2)));
  ASSERT_OK(Export("run", "fresh", Stages(2)));
  EXPECT_TRUE(Snapshot(Path("again")) == Snapshot(Path("fresh")));
}

// 16 bits are not widened, nor taken for 32.
TEST_F(BugKindsOfState, B35MomentsOfFewerBitsAreRefusedWithBothDTypes) {
  Make(GptModel(), {});
  Edit("mp_rank_00", [](TorchTree& tree) {
    const size_t at =
        Optimizer(tree)["state"]["#0"]["exp_avg"]["tensor"].get<size_t>();
    tree.tensors[at].dtype = ckpt::DType::kBF16;
    tree.tensors[at].bytes.resize(tree.tensors[at].bytes.size() / 2);
  });
  EXPECT_THAT(
      Export("megatron", "copy", Layout{}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("embedding.word.weight"), HasSubstr("exp_avg"),
                     HasSubstr("BF16"), HasSubstr("F32"))));
  EXPECT_FALSE(*ckpt::Exists(Path("copy")));
}

// Groups that nothing but a bound tells apart.
TEST_F(BugKindsOfState, B69GroupsOfOneKindAreReadAsTheTwoThatTheyAre) {
  Make(GptModel(), {});
  Edit("mp_rank_00", [](TorchTree& tree) {
    ordered_json& groups = Optimizer(tree)["param_groups"];
    ordered_json other = groups[0];
    other["max_lr"] = 5.0;
    groups.push_back(std::move(other));
  });
  ASSERT_OK_AND_ASSIGN(const ckpt::File file,
                       ckpt::File::OpenForRead(FileOf("mp_rank_00")));
  ASSERT_OK_AND_ASSIGN(const TorchFile torch, TorchFile::Read(file));
  ASSERT_OK_AND_ASSIGN(const PickleValue optimizer,
                       torch.root().Get("optimizer"));
  MegatronCommon common;
  ASSERT_OK(common.CollectGroups(optimizer));
  ASSERT_OK(common.CollectGroups(optimizer));  // of another rank
  const json state = common.State({}, 3);
  EXPECT_EQ(state["megatron"]["param_groups"].size(), 3);
}

}  // namespace
}  // namespace shardshift::reshard
