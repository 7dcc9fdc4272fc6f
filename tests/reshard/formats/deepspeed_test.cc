// Checkpoints of DeepSpeed: a real one, and small ones made here by the rules
// of distributed-optimizer.md 4. data/deepspeed is of DeepSpeed 0.19.8, a run
// with ZeRO-2 on two ranks with round_robin_gradients and parameter_alignment;
// its expected.json has the CRC-32 of each tensor as the running processes had
// it.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/crc32.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/torch_writer.h"
#include "reshard/formats/zip.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/generic_sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RealDeepSpeedTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RealDeepSpeedTest, HasTheValuesOfTheRun) {
  ASSERT_OK_AND_ASSIGN(const OpenedSource source,
                       OpenGeneric(DataPath(GetParam())));
  EXPECT_EQ(source.format, Format::kDeepSpeed);
  const auto expected =
      nlohmann::json::parse(ReadData("deepspeed/expected.json"));
  const auto bytes = BytesOf(source);
  EXPECT_EQ(bytes.size(), expected.size());
  for (const auto& [key, crc] : expected.items()) {
    ASSERT_TRUE(bytes.contains(key)) << key;
    EXPECT_EQ(ckpt::UpdateCrc32(0, std::as_bytes(std::span(bytes.at(key)))),
              crc.get<uint32_t>())
        << key;
  }
  ASSERT_OK_AND_ASSIGN(const CheckpointState state, ReadTexts(*source.reader));
  EXPECT_EQ(source.reader->table().step, 3);
  EXPECT_EQ(state.state["progress"]["step"], 3);
  const auto& generic = state.state["generic"];
  EXPECT_EQ(generic["zero_stage"], 2);
  EXPECT_EQ(generic["groups"][0]["step"], 3);
  EXPECT_EQ(generic["groups"][0]["lr"], 0.01);
  EXPECT_EQ(generic["run"]["dp_world_size"], 2);
}

INSTANTIATE_TEST_SUITE_P(RootAndTag, RealDeepSpeedTest,
                         ::testing::Values("deepspeed",
                                           "deepspeed/global_step3"));

PyValue SizeOf(const ckpt::Shape& shape) {
  return PyValue::Call("torch", "Size", {PyValue::IntTuple(shape)});
}

// Two parameters: a of [2,5], 100 and on; b of [3], 200 and on. The moments are
// 1000 and 2000 more. A frozen c of [3], 300 and on, and a tied name of a.
Floats Plus(Floats values, float more) {
  for (float& value : values) {
    if (value != 0) value += more;
  }
  return values;
}

void ExpectValues(const std::map<std::string, Floats>& found) {
  EXPECT_EQ(found.size(), 7);
  for (const auto& [name, values] : std::map<std::string, Floats>{
           {"a", Count(100, 10)}, {"b", Count(200, 3)}}) {
    const std::string prefix = absl::StrCat("optim.state.", name, ".");
    EXPECT_EQ(found.at(absl::StrCat(prefix, "master")), values);
    EXPECT_EQ(found.at(absl::StrCat(prefix, "exp_avg")), Plus(values, 1000));
    EXPECT_EQ(found.at(absl::StrCat(prefix, "exp_avg_sq")), Plus(values, 2000));
  }
  EXPECT_EQ(found.at("c"), Count(300, 3));
}

// What a test changes.
struct Faults {
  int64_t stage = 3;
  int64_t lost_elements = 0;  // of exp_avg on rank 1
  int64_t partition_count = 3;
};

class MadeDeepSpeedTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRanks = 3;

  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  // b is a group of its own, and sub-group; pieces of 4 and 1 elements.
  static std::vector<Floats> Arrays(int64_t rank) {
    const Floats a = {100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 0, 0};
    return {Floats(a.begin() + rank * 4, a.begin() + rank * 4 + 4),
            {200 + float(rank)}};
  }

  static PyValue::Entries Moments(TorchText& text, int64_t rank,
                                  int64_t lost_elements) {
    PyValue::Entries states;
    for (const Floats& array : Arrays(rank)) {
      Floats moment = Plus(array, 1000);
      if (states.empty() && rank == 1) {
        moment.resize(moment.size() - lost_elements);
      }
      states.emplace_back(PyValue::Int(std::ssize(states)),
                          PyValue::Dict(PyValue::Attributes{
                              {"step", text.Shaped({7}, {})},
                              {"exp_avg", text.Flat(moment)},
                              {"exp_avg_sq", text.Flat(Plus(array, 2000))}}));
    }
    return states;
  }

  static PyValue Groups() {
    PyValue::Items groups;
    for (int64_t g = 0; g < 2; ++g) {
      groups.push_back(PyValue::Dict(
          PyValue::Attributes{{"lr", PyValue::Float(0.5)},
                              {"params", PyValue::List({PyValue::Int(g)})}}));
    }
    return PyValue::List(std::move(groups));
  }

  static PyValue Model(TorchText& text, int64_t rank) {
    const Floats frozen = {300 + float(rank)};
    return PyValue::Dict(PyValue::Attributes{
        {"module",
         PyValue::OrderedDict({{PyValue::Str("a"), text.Shaped({}, {0})},
                               {PyValue::Str("c"), text.Shaped({}, {0})}})},
        {"param_shapes",
         PyValue::List(
             {PyValue::OrderedDict({{PyValue::Str("a"), SizeOf({2, 5})}}),
              PyValue::OrderedDict({{PyValue::Str("b"), SizeOf({3})}})})},
        {"frozen_param_shapes",
         PyValue::OrderedDict({{PyValue::Str("c"), SizeOf({3})}})},
        {"frozen_param_fragments",
         PyValue::OrderedDict({{PyValue::Str("c"), text.Flat(frozen)}})},
        {"shared_params", rank == 0 ? PyValue::Dict(PyValue::Attributes{
                                          {"tied", PyValue::Str("a")}})
                                    : PyValue::Dict(PyValue::Attributes{})},
        {"buffer_names", PyValue::List({})},
        {"global_steps", PyValue::Int(9)}});
  }

  static PyValue Inner(TorchText& text, int64_t rank, const Faults& faults) {
    return PyValue::Dict(PyValue::Attributes{
        {"state", PyValue::Dict(Moments(text, rank, faults.lost_elements))},
        {"param_groups", Groups()}});
  }

  // A run with ZeRO-3 in `folder`.
  void WriteZero3(const std::string& folder, const Faults& faults) const {
    ASSERT_OK(ckpt::MakeDirectories(folder));
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const std::string start =
          absl::StrCat(folder, "/zero_pp_rank_", rank, "_mp_rank_00_");
      TorchText model;
      model.Write(absl::StrCat(start, "model_states.pt"), Model(model, rank));
      TorchText shard;
      PyValue::Items masters;
      for (const Floats& array : Arrays(rank)) {
        masters.push_back(shard.Flat(array));
      }
      shard.Write(
          absl::StrCat(start, "optim_states.pt"),
          PyValue::Dict(PyValue::Attributes{
              {"optimizer_state_dict",
               PyValue::Dict(PyValue::Attributes{
                   {"zero_stage", PyValue::Call("deepspeed.runtime.zero.config",
                                                "ZeroStageEnum",
                                                {PyValue::Int(faults.stage)})},
                   {"partition_count", PyValue::Int(faults.partition_count)},
                   {"fp32_flat_groups", PyValue::List(std::move(masters))},
                   {"optimizer_state_dict", Inner(shard, rank, faults)}})}}));
    }
  }

  // What ds_to_universal makes of it.
  void WriteUniversal(const std::string& folder) const {
    WriteZero3(folder, {});
    for (const auto& [name, values] : std::map<std::string, Floats>{
             {"a", Count(100, 10)}, {"b", Count(200, 3)}}) {
      const std::string zero = absl::StrCat(folder, "/zero/", name);
      ASSERT_OK(ckpt::MakeDirectories(zero));
      float more = 0;
      for (const char* file : {"fp32.pt", "exp_avg.pt", "exp_avg_sq.pt"}) {
        TorchText text;
        text.Write(ckpt::JoinPath(zero, file), text.Flat(Plus(values, more)));
        more += 1000;
      }
    }
    TorchText text;
    text.Write(absl::StrCat(folder, "/zero/optimizer_state.pt"),
               PyValue::Dict(PyValue::Attributes{
                   {"optimizer_state_dict", Inner(text, 0, {})},
                   {"param_groups", Groups()}}));
  }

  const ckpt::TempDir directory_;
};

TEST_F(MadeDeepSpeedTest, Zero3) {
  WriteZero3(Path("some-tag"), {});
  ckpt::WriteFile(Path("latest"), "some-tag\n");
  ASSERT_OK_AND_ASSIGN(const OpenedSource source,
                       OpenGeneric(directory_.path()));
  ExpectValues(FloatsOf(source));
  ASSERT_OK_AND_ASSIGN(const CheckpointState state, ReadTexts(*source.reader));
  EXPECT_EQ(source.reader->table().step, 9);
  EXPECT_EQ(state.state["generic"]["groups"][1]["step"], 7);
  EXPECT_EQ(state.state["generic"]["groups"][1]["params"],
            nlohmann::json::array({"b"}));
  EXPECT_EQ(state.state["generic"]["shared"]["tied"], "a");
}

TEST_F(MadeDeepSpeedTest, UniversalOfZero3) {
  WriteUniversal(Path("tag_universal"));
  ckpt::WriteFile(Path("latest_universal"), "tag_universal");
  for (const std::string& path : {directory_.path(), Path("tag_universal")}) {
    ASSERT_OK_AND_ASSIGN(const OpenedSource source, OpenGeneric(path));
    EXPECT_EQ(source.format, Format::kUniversal);
    ExpectValues(FloatsOf(source));
    ASSERT_OK_AND_ASSIGN(const CheckpointState state,
                         ReadTexts(*source.reader));
    EXPECT_EQ(state.state["generic"]["groups"][0]["step"], 7);
  }
}

TEST_F(MadeDeepSpeedTest, UniversalWithoutAFile) {
  WriteUniversal(Path("tag"));
  std::filesystem::remove_all(Path("tag/zero/b"));
  EXPECT_THAT(OpenGeneric(Path("tag")),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("zero/b"), HasSubstr("missing"))));
  ASSERT_OK(ckpt::MakeDirectories(Path("tag/zero/b")));
  EXPECT_THAT(OpenGeneric(Path("tag")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("fp32.pt")));
  TorchText text;
  text.Write(Path("tag/zero/b/fp32.pt"), text.Flat(Count(200, 2)));
  EXPECT_THAT(OpenGeneric(Path("tag")),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("b/fp32.pt"), HasSubstr("[2]"),
                             HasSubstr("expected [3]"))));
}

// Names with an axis more are none that are looked for.
TEST_F(MadeDeepSpeedTest, B32FilesUnderOtherNamesAreMissing) {
  WriteZero3(Path("tag"), {});
  for (int64_t rank = kRanks; rank-- > 0;) {
    const std::string start = absl::StrCat("tag/zero_pp_rank_", rank);
    std::filesystem::rename(
        Path(start + "_mp_rank_00_optim_states.pt"),
        Path(start + "_cp_rank_0_mp_rank_00_optim_states.pt"));
    EXPECT_THAT(OpenGeneric(Path("tag")),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr(rank == 0 ? "has no *zero_pp_rank_*"
                                             : "partition_count is 3")));
  }
}

TEST_F(MadeDeepSpeedTest, MissingRank) {
  WriteZero3(Path("tag"), {});
  std::filesystem::remove(
      Path("tag/zero_pp_rank_1_mp_rank_00_optim_states.pt"));
  EXPECT_THAT(OpenGeneric(Path("tag")),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("zero_pp_rank_2_mp_rank_00_optim"),
                             HasSubstr("of rank 1"))));
  // The last one leaves no hole.
  std::filesystem::remove(
      Path("tag/zero_pp_rank_2_mp_rank_00_optim_states.pt"));
  EXPECT_THAT(
      OpenGeneric(Path("tag")),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("zero_pp_rank_0_mp_rank_00_optim_states.pt"),
                     HasSubstr("partition_count is 3"))));
  std::filesystem::remove(
      Path("tag/zero_pp_rank_0_mp_rank_00_optim_states.pt"));
  EXPECT_THAT(OpenGeneric(Path("tag")),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("has no *zero_pp_rank_*_optim_states.pt")));
}

TEST_F(MadeDeepSpeedTest, WrongSize) {
  Faults faults;
  faults.lost_elements = 1;
  WriteZero3(Path("tag"), faults);
  EXPECT_THAT(
      OpenGeneric(Path("tag")),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt"),
                     HasSubstr("exp_avg has shape [3]"),
                     HasSubstr("expected 4 elements"))));
}

TEST_F(MadeDeepSpeedTest, UnknownStage) {
  Faults faults;
  faults.stage = 4;
  WriteZero3(Path("tag"), faults);
  EXPECT_THAT(
      OpenGeneric(Path("tag")),
      StatusIs(absl::StatusCode::kUnimplemented,
               AllOf(HasSubstr("zero_pp_rank_0_mp_rank_00_optim_states.pt"),
                     HasSubstr("zero_stage is 4, expected 1, 2 or 3"))));
  faults.stage = 2;
  WriteZero3(Path("tag"), faults);
  EXPECT_THAT(OpenGeneric(Path("tag")), StatusIs(absl::StatusCode::kDataLoss,
                                                 HasSubstr("zero_stage is 2")));
}

TEST_F(MadeDeepSpeedTest, OtherParallelism) {
  WriteZero3(Path("tag"), {});
  const auto refuses = [&](const std::string& file, const std::string& what) {
    ckpt::WriteFile(Path(absl::StrCat("tag/", file)), "");
    EXPECT_THAT(OpenGeneric(Path("tag")),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(what)));
    std::filesystem::remove(Path(absl::StrCat("tag/", file)));
  };
  refuses("layer_00-model_states.pt", "both files of ZeRO-3 and of a pipeline");
  refuses("layer_00-model_00-part_01-model_states.pt", "other ranks");
  refuses("layer_1_expert_0_mp_rank_00_model_states.pt", "experts");
  EXPECT_OK(OpenGeneric(Path("tag")));
}

TEST_F(MadeDeepSpeedTest, LatestIsNoWayOut) {
  WriteZero3(Path("tag"), {});
  for (const char* text : {"", "..", "../tag", "/etc"}) {
    ckpt::WriteFile(Path("latest"), text);
    EXPECT_THAT(ReadDeepSpeed(directory_.path()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("latest")))
        << text;
  }
}

// Another file under that name is not printed whole.
TEST_F(MadeDeepSpeedTest, LatestIsShort) {
  WriteZero3(Path("tag"), {});
  ckpt::WriteFile(Path("latest"), std::string(1000, '/'));
  const absl::Status status = ReadDeepSpeed(directory_.path()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("in 1000 bytes")));
  EXPECT_LT(status.message().size(), 300);
}

}  // namespace
}  // namespace shardshift::reshard
