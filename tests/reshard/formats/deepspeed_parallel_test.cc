// Checkpoints of DeepSpeed with model parallelism, made here by the rules of
// distributed-optimizer.md 4.4 and 4.6: two pipeline stages, or one, two
// tensor-parallel and two data-parallel ranks, ZeRO-1.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/torch_writer.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/generic_sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kDataRanks = 2;

struct Shard {
  std::string name;
  ckpt::Shape shape;
  Floats values;
};

Floats Plus(Floats values, float more) {
  for (float& value : values) value += more;
  return values;
}

PyValue Strings(const std::vector<std::string>& texts) {
  PyValue::Items items;
  for (const std::string& text : texts) items.push_back(PyValue::Str(text));
  return PyValue::List(std::move(items));
}

PyValue Module(TorchText& text, const std::vector<Shard>& shards) {
  PyValue::Entries entries;
  for (const Shard& shard : shards) {
    entries.emplace_back(PyValue::Str(shard.name),
                         text.Shaped(shard.values, shard.shape));
  }
  return PyValue::OrderedDict(std::move(entries));
}

// What a model-parallel rank has.
struct Rank {
  std::vector<Shard> trained;  // masters; moments are 1000 and 2000 more
  std::vector<Shard> module;   // without what is trained
  int64_t step = 7;
  float lr = 0.5;
};

class ParallelDeepSpeedTest : public ::testing::Test {
 protected:
  using Stage = std::vector<Rank>;

  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  // Elements of the whole, whose values are base, base + 1, ...
  static Floats At(float base, const std::vector<int>& indices) {
    Floats values;
    for (const int i : indices) values.push_back(base + float(i));
    return values;
  }

  // Of word [5,2], padded to 6 rows, norm [3], dense [2,4] split along dim 1.
  static Stage FirstStage() {
    return {{{{"tied_modules.embed.word", {3, 2}, Count(100, 6)},
              {"1.norm", {3}, Count(200, 3)},
              {"1.dense", {2, 2}, At(300, {0, 1, 4, 5})}},
             {}},
            {{{"tied_modules.embed.word", {3, 2}, Count(106, 6)},
              {"1.norm", {3}, Count(200, 3)},
              {"1.dense", {2, 2}, At(300, {2, 3, 6, 7})}},
             {}}};
  }
  // Of gate_up [8,1], two halves, and word again.
  static Stage SecondStage() {
    return {{{{"2.gate_up", {4, 1}, At(400, {0, 1, 4, 5})},
              {"tied_modules.embed.word", {3, 2}, Count(100, 6)}},
             {}},
            {{{"2.gate_up", {4, 1}, At(400, {2, 3, 6, 7})},
              {"tied_modules.embed.word", {3, 2}, Count(106, 6)}},
             {}}};
  }

  static PyValue::Attributes Lists() {
    return {
        {"universal_checkpoint_version", PyValue::Float(0.2)},
        {"vocabulary_parameter_patterns", Strings({"tied_modules.embed.word"})},
        {"original_vocab_size", PyValue::Int(5)},
        {"tp_replicated_parameter_patterns", Strings({R"(\d+.norm)"})},
        {"parameter_with_row_parallelism_patterns", Strings({R"(\d+.dense)"})},
        {"parameter_with_2_sub_params_cat_dim_0", Strings({R"(\d+.gate_up)"})}};
  }

  void WriteModel(int64_t number, const Rank& rank, bool is_pipeline) const {
    TorchText text;
    PyValue::Entries shapes;
    for (const Shard& p : rank.trained) {
      shapes.emplace_back(
          PyValue::Str(p.name),
          PyValue::Call("torch", "Size", {PyValue::IntTuple(p.shape)}));
    }
    PyValue::Attributes root = {
        {"module", is_pipeline ? PyValue() : Module(text, rank.module)},
        {"param_shapes",
         PyValue::List({PyValue::OrderedDict(std::move(shapes))})},
        {"buffer_names", Strings(buffers_)},
        {"checkpoint_parallel_dimensions",
         PyValue::Dict(
             PyValue::Attributes{{"pp_degree", PyValue::Int(pipeline_)},
                                 {"tp_degree", PyValue::Int(tensor_)}})},
        {"global_steps", PyValue::Int(rank.step)}};
    if (has_info_) {
      root.emplace_back("universal_checkpoint_info", PyValue::Dict(info_));
    }
    text.Write(Path(absl::StrFormat("mp_rank_%02d_model_states.pt", number)),
               PyValue::Dict(std::move(root)));
  }

  void WriteOptimizer(int64_t number, const Rank& rank) const {
    Floats all;
    for (const Shard& p : rank.trained) {
      all.insert(all.end(), p.values.begin(), p.values.end());
    }
    while (all.size() % (2 * kDataRanks) != 0) all.push_back(-1);
    const int64_t size = std::ssize(all) / kDataRanks;
    for (int64_t d = 0; d < kDataRanks; ++d) {
      const Floats part(all.begin() + d * size, all.begin() + (d + 1) * size);
      TorchText text;
      const PyValue state = PyValue::Dict(
          PyValue::Attributes{{"step", PyValue::Int(rank.step)},
                              {"exp_avg", text.Flat(Plus(part, 1000))},
                              {"exp_avg_sq", text.Flat(Plus(part, 2000))}});
      const PyValue group = PyValue::Dict(
          PyValue::Attributes{{"lr", PyValue::Float(rank.lr)},
                              {"params", PyValue::List({PyValue::Int(0)})}});
      const PyValue inner = PyValue::Dict(PyValue::Attributes{
          {"state", PyValue::Dict(PyValue::Entries{{PyValue::Int(0), state}})},
          {"param_groups", PyValue::List({group})}});
      text.Write(
          Path(absl::StrFormat(
              "bf16_zero_pp_rank_%d_mp_rank_%02d_optim_states.pt", d, number)),
          PyValue::Dict(PyValue::Attributes{
              {"optimizer_state_dict",
               PyValue::Dict(PyValue::Attributes{
                   {"zero_stage", PyValue::Int(1)},
                   {"partition_count",
                    PyValue::List({PyValue::Int(kDataRanks)})},
                   {"single_partition_of_fp32_groups",
                    PyValue::List({text.Flat(part)})},
                   {"base_optimizer_state", inner}})}}));
    }
  }

  void WriteLayer(int64_t layer, int64_t rank,
                  const std::vector<Shard>& shards) const {
    TorchText text;
    text.Write(Path(absl::StrFormat("layer_%02d-model_%02d-model_states.pt",
                                    layer, rank)),
               Module(text, shards));
  }

  void WriteRanks(const std::vector<Stage>& stages, bool is_pipeline) const {
    int64_t number = 0;
    for (const Stage& stage : stages) {
      for (const Rank& rank : stage) {
        WriteModel(number, rank, is_pipeline);
        WriteOptimizer(number, rank);
        ++number;
      }
    }
  }

  // Layer 0 and 3 are the tied one; layer 1 has a frozen bias [4] and a buffer,
  // too; layer 4 is frozen.
  void WritePipeline() {
    buffers_ = {"1.scale"};
    WriteRanks({FirstStage(), SecondStage()}, /*is_pipeline=*/true);
    for (int64_t t = 0; t < 2; ++t) {
      const float at = 2 * float(t);
      WriteLayer(0, t, {{"word", {3, 2}, Count(50 + 100 * at, 6)}});
      WriteLayer(1, t,
                 {{"norm", {3}, Count(0, 3)},
                  {"dense", {2, 2}, Count(0, 4)},
                  {"bias", {2}, Count(500 + at, 2)},
                  {"scale", {1}, {600}}});
      WriteLayer(2, t, {{"gate_up", {4, 1}, Count(0, 4)}});
      WriteLayer(3, t, {{"word", {3, 2}, Count(50 + 100 * at, 6)}});
      WriteLayer(4, t, {{"weight", {1, 2}, Count(700 + at, 2)}});
    }
  }

  absl::StatusOr<OpenedSource> Open() const {
    OpenOptions options;
    options.foreign.generic = true;
    options.verify = true;
    return OpenSource(directory_.path(), options);
  }
  void Refuses(StatusCode code, const std::vector<std::string>& texts) const {
    const absl::Status status = Open().status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& text : texts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
  }

  static void ExpectTrained(const std::map<std::string, Floats>& found,
                            const std::string& name, const Floats& values) {
    const std::string prefix = absl::StrCat("optim.state.", name, ".");
    EXPECT_EQ(found.at(absl::StrCat(prefix, "master")), values);
    EXPECT_EQ(found.at(absl::StrCat(prefix, "exp_avg")), Plus(values, 1000));
    EXPECT_EQ(found.at(absl::StrCat(prefix, "exp_avg_sq")), Plus(values, 2000));
  }

  const ckpt::TempDir directory_;
  int64_t pipeline_ = 2;
  int64_t tensor_ = 2;
  bool has_info_ = true;
  PyValue::Attributes info_ = Lists();
  std::vector<std::string> buffers_;
};

TEST_F(ParallelDeepSpeedTest, PipelineOfTensorParallelRanks) {
  WritePipeline();
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open());
  const std::map<std::string, Floats> found = FloatsOf(source);
  EXPECT_EQ(found.size(), 4 * 3 + 3 + 4);
  EXPECT_EQ(found.at("1.dense"), Floats({0, 1, 0, 1, 2, 3, 2, 3}));
  ExpectTrained(found, "tied_modules.embed.word", Count(100, 10));
  ExpectTrained(found, "1.norm", Count(200, 3));
  ExpectTrained(found, "1.dense", Count(300, 8));
  ExpectTrained(found, "2.gate_up", Count(400, 8));
  EXPECT_EQ(found.at("1.bias"), Count(500, 4));
  EXPECT_EQ(found.at("1.scale"), Floats{600});
  EXPECT_EQ(found.at("4.weight"), Count(700, 4));
  EXPECT_THAT(source.left_out, Contains(HasSubstr("word, the last 1 rows")));
  EXPECT_THAT(source.notes,
              Contains("layer 0 is taken to be tied_modules.embed"));
  ASSERT_OK_AND_ASSIGN(const CheckpointState state, ReadTexts(*source.reader));
  const auto& groups = state.state["generic"]["groups"];
  ASSERT_EQ(groups.size(), 1);
  EXPECT_EQ(groups[0]["step"], 7);
  EXPECT_EQ(groups[0]["params"],
            nlohmann::json::array(
                {"tied_modules.embed.word", "1.norm", "1.dense", "2.gate_up"}));
}

TEST_F(ParallelDeepSpeedTest, SettingsThatDifferByStageAreKept) {
  WritePipeline();
  Stage second = SecondStage();
  for (Rank& rank : second) rank.lr = 0.25;
  WriteRanks({FirstStage(), second}, /*is_pipeline=*/true);
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open());
  ASSERT_OK_AND_ASSIGN(const CheckpointState state, ReadTexts(*source.reader));
  const auto& groups = state.state["generic"]["groups"];
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[1]["lr"], 0.25);
}

TEST_F(ParallelDeepSpeedTest, CopiesThatDiffer) {
  WritePipeline();
  Stage first = FirstStage();
  Stage second = SecondStage();
  second[1].trained[1].values[2] = 0;
  WriteRanks({first, second}, true);
  Refuses(StatusCode::kDataLoss, {"tied_modules.embed.word", "differs between",
                                  "_mp_rank_01_optim", "_mp_rank_03_optim"});
  first[1].trained[1].values[2] = 0;
  WriteRanks({first, SecondStage()}, true);
  Refuses(StatusCode::kDataLoss, {"1.norm", "differs between",
                                  "_mp_rank_00_optim", "_mp_rank_01_optim"});
  WriteRanks({FirstStage(), SecondStage()}, true);
  WriteLayer(3, 0, {{"word", {3, 2}, Count(51, 6)}});
  Refuses(StatusCode::kDataLoss, {"tied_modules.embed.word",
                                  "layer_00-model_00", "layer_03-model_00"});
  WriteLayer(3, 0, {{"word", {3, 2}, Count(50, 6)}});
  WriteLayer(1, 1,
             {{"norm", {3}, Count(0, 3)},
              {"dense", {2, 2}, Count(0, 4)},
              {"bias", {2}, Count(502, 2)},
              {"scale", {1}, {601}}});
  Refuses(StatusCode::kDataLoss,
          {"1.scale", "layer_01-model_00", "layer_01-model_01"});
}

TEST_F(ParallelDeepSpeedTest, MissingFiles) {
  WritePipeline();
  const auto without = [&](const std::vector<std::string>& names,
                           const std::vector<std::string>& texts) {
    for (const std::string& name : names) {
      std::filesystem::rename(Path(name), Path(absl::StrCat(name, ".away")));
    }
    Refuses(StatusCode::kDataLoss, texts);
    for (const std::string& name : names) {
      std::filesystem::rename(Path(absl::StrCat(name, ".away")), Path(name));
    }
  };
  const std::string end = "_optim_states.pt";
  const std::string zero = "bf16_zero_pp_rank_";
  without({"mp_rank_01_model_states.pt"},
          {"mp_rank_02_model_states.pt", "mp_rank_1"});
  without({absl::StrCat(zero, "1_mp_rank_02", end)},
          {"mp_rank_02_model_states.pt", "all ranks are needed"});
  // The last stage, of which nothing else tells.
  without({"mp_rank_02_model_states.pt", "mp_rank_03_model_states.pt",
           absl::StrCat(zero, "0_mp_rank_02", end),
           absl::StrCat(zero, "1_mp_rank_02", end),
           absl::StrCat(zero, "0_mp_rank_03", end),
           absl::StrCat(zero, "1_mp_rank_03", end)},
          {"2 pipeline stages", "there are 2 files", "mp_rank_01"});
  without({"mp_rank_03_model_states.pt"},
          {"0_mp_rank_03_optim_states.pt", "no model file"});
  without({"layer_02-model_00-model_states.pt",
           "layer_02-model_01-model_states.pt"},
          {"layer_2", "2.gate_up"});
  without({"layer_02-model_01-model_states.pt"},
          {"layer_02-model_00", "each of the 2"});
  EXPECT_OK(Open());
}

TEST_F(ParallelDeepSpeedTest, OtherNumberOfRanks) {
  tensor_ = 4;
  pipeline_ = 1;
  WritePipeline();
  Refuses(StatusCode::kDataLoss, {"mp_rank_02_model_states.pt has no 1.dense"});
  tensor_ = 3;
  WritePipeline();
  Refuses(StatusCode::kDataLoss, {"3 tensor-parallel ranks", "4 files"});
}

TEST_F(ParallelDeepSpeedTest, FilesOfTwoCheckpoints) {
  WritePipeline();
  Stage second = SecondStage();
  for (Rank& rank : second) rank.step = 8;
  WriteRanks({FirstStage(), second}, true);
  Refuses(StatusCode::kDataLoss,
          {"mp_rank_00_model", "mp_rank_02_model", "global_steps 7 and 8"});
  // The optimizer's alone.
  WritePipeline();
  WriteOptimizer(3, second[1]);
  Refuses(StatusCode::kDataLoss, {"0_mp_rank_03_optim", "settings or steps"});
}

TEST_F(ParallelDeepSpeedTest, RulesOfOneRankOnly) {
  WritePipeline();
  info_[3].second = Strings({R"(\d+.norms)"});
  WriteModel(1, FirstStage()[1], true);
  Refuses(StatusCode::kDataLoss,
          {"mp_rank_01_model_states.pt", "1.norm", "in another way"});
  has_info_ = false;
  WritePipeline();
  Refuses(StatusCode::kUnimplemented,
          {"mp_rank_00_model_states.pt", "no universal_checkpoint_info"});
}

TEST_F(ParallelDeepSpeedTest, WeightsOfAnotherShape) {
  WritePipeline();
  WriteLayer(2, 1, {{"gate_up", {2, 1}, Count(0, 2)}});
  Refuses(StatusCode::kDataLoss,
          {"layer_02-model_01", "2.gate_up", "shape [2,1], expected [4,1]"});
}

// Two tied layers that look the same; one has a buffer.
TEST_F(ParallelDeepSpeedTest, TiedLayersThatCannotBeTold) {
  WritePipeline();
  Stage first = FirstStage();
  for (Rank& rank : first) {
    rank.trained.push_back({"tied_modules.other.word", {3, 2}, Count(800, 6)});
  }
  WriteRanks({first, SecondStage()}, true);
  EXPECT_OK(Open());
  for (int64_t t = 0; t < 2; ++t) {
    WriteLayer(3, t, {{"word", {3, 2}, Count(50, 6)}, {"more", {1}, {1}}});
  }
  Refuses(StatusCode::kUnimplemented,
          {"layer_03-model_00", "tied_modules.embed", "tied_modules.other"});
}

// Without a pipeline: the module has what the optimizer has not. Column 0 and 1
// of w [2,6] are of rank 0, with column 3, the rest of rank 1.
TEST_F(ParallelDeepSpeedTest, TensorParallelRanks) {
  pipeline_ = 1;
  buffers_ = {"scale"};
  info_ = {
      {"universal_checkpoint_version", PyValue::Float(0.4)},
      {"parameter_with_sub_params",
       PyValue::List({PyValue::Dict(PyValue::Attributes{
           {"patterns", Strings({"^w$"})},
           {"shape", PyValue::List({PyValue::Int(-1),
                                    PyValue::IntTuple(std::vector{3, 3})})},
           {"partition_dim", PyValue::Int(1)}})})},
      {"sub_param_shard_widths",
       PyValue::Dict(PyValue::Attributes{
           {"^w$", PyValue::List({PyValue::IntTuple(std::vector{2, 1}),
                                  PyValue::IntTuple(std::vector{1, 2})})}})}};
  Stage stage = {{{{"w", {2, 3}, At(100, {0, 1, 3, 6, 7, 9})}},
                  {{"frozen", {2}, Count(300, 2)}, {"scale", {1}, {400}}}},
                 {{{"w", {2, 3}, At(100, {2, 4, 5, 8, 10, 11})}},
                  {{"frozen", {1}, {302}}, {"scale", {1}, {400}}}}};
  WriteRanks({stage}, /*is_pipeline=*/false);
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open());
  const std::map<std::string, Floats> found = FloatsOf(source);
  EXPECT_EQ(found.size(), 5);
  ExpectTrained(found, "w", Count(100, 12));
  EXPECT_EQ(found.at("frozen"), Count(300, 3));
  EXPECT_EQ(found.at("scale"), Floats{400});

  stage[1].module[1].values = {401};
  WriteRanks({stage}, false);
  Refuses(StatusCode::kDataLoss, {"scale", "mp_rank_00_model_states.pt",
                                  "mp_rank_01_model_states.pt"});
  stage[1].module.pop_back();
  WriteRanks({stage}, false);
  Refuses(StatusCode::kDataLoss, {"mp_rank_01_model_states.pt", "no scale"});
  stage[0].module.pop_back();
  stage[1].module.push_back({"extra", {1}, {1}});
  WriteRanks({stage}, false);
  Refuses(StatusCode::kDataLoss, {"extra", "not there on all"});
}

// Each data-parallel rank has a part of each shard.
TEST_F(ParallelDeepSpeedTest, Zero3) {
  const PyValue shape = PyValue::IntTuple(std::vector{2, 3});
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t d = 0; d < kDataRanks; ++d) {
      const std::string start =
          Path(absl::StrFormat("zero_pp_rank_%d_mp_rank_%02d_", d, t));
      TorchText model;
      model.Write(
          absl::StrCat(start, "model_states.pt"),
          PyValue::Dict(PyValue::Attributes{
              {"module", PyValue::Dict(PyValue::Attributes{
                             {"w", model.Flat({})}, {"c", model.Flat({})}})},
              {"param_shapes", PyValue::List({PyValue::Dict(
                                   PyValue::Attributes{{"w", shape}})})},
              {"frozen_param_shapes",
               PyValue::Dict(PyValue::Attributes{
                   {"c", PyValue::IntTuple(std::vector{2 - t})}})},
              {"frozen_param_fragments",
               PyValue::Dict(PyValue::Attributes{
                   {"c", model.Flat({300 + float(2 * t + d)})}})},
              {"universal_checkpoint_info", PyValue::Dict(Lists())},
              {"global_steps", PyValue::Int(7)}}));
      TorchText text;
      const Floats part = Count(100 + 6 * float(t) + 3 * float(d), 3);
      const PyValue state = PyValue::Dict(
          PyValue::Attributes{{"exp_avg", text.Flat(Plus(part, 1000))},
                              {"exp_avg_sq", text.Flat(Plus(part, 2000))}});
      const PyValue group = PyValue::Dict(
          PyValue::Attributes{{"params", PyValue::List({PyValue::Int(0)})}});
      const PyValue shard = PyValue::Dict(PyValue::Attributes{
          {"zero_stage", PyValue::Int(3)},
          {"partition_count", PyValue::Int(kDataRanks)},
          {"fp32_flat_groups", PyValue::List({text.Flat(part)})},
          {"optimizer_state_dict",
           PyValue::Dict(PyValue::Attributes{
               {"state",
                PyValue::Dict(PyValue::Entries{{PyValue::Int(0), state}})},
               {"param_groups", PyValue::List({group})}})}});
      text.Write(
          absl::StrCat(start, "optim_states.pt"),
          PyValue::Dict(PyValue::Attributes{{"optimizer_state_dict", shard}}));
    }
  }
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open());
  const std::map<std::string, Floats> found = FloatsOf(source);
  EXPECT_EQ(found.size(), 4);
  ExpectTrained(found, "w", Count(100, 12));
  EXPECT_EQ(found.at("c"), Count(300, 3));
}

TEST_F(ParallelDeepSpeedTest, WithoutZero) {
  for (int64_t number = 0; number < 4; ++number) {
    TorchText text;
    text.Write(Path(absl::StrFormat("mp_rank_%02d_model_states.pt", number)),
               PyValue::Dict(PyValue::Attributes{
                   {"universal_checkpoint_info", PyValue::Dict(info_)},
                   {"global_steps", PyValue::Int(7)}}));
  }
  Refuses(StatusCode::kUnimplemented, {"without ZeRO"});
}

}  // namespace
}  // namespace shardshift::reshard
