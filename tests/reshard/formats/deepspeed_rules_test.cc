// How shards are merged. data/deepspeed-autotp.pt has what DeepSpeed 0.19.8
// wrote for a Llama on two tensor-parallel ranks: universal_checkpoint_info,
// and the shapes of the shards.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_rules.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "reshard/formats/common_values.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/pickle.h"
#include "reshard/formats/pickle_writer.h"
#include "tests/reshard/formats/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ckpt::Box;
using ckpt::Shape;
using ::testing::AllOf;
using ::testing::HasSubstr;

PyValue Ints(const std::vector<int64_t>& values) {
  return PyValue::IntTuple(values);
}

PyValue Strings(const std::vector<std::string>& texts) {
  PyValue::Items items;
  for (const std::string& text : texts) items.push_back(PyValue::Str(text));
  return PyValue::List(std::move(items));
}

absl::StatusOr<DeepSpeedRules> RulesOf(PyValue::Attributes info,
                                       int64_t num_ranks = 2) {
  const PyValue root = PyValue::Dict(PyValue::Attributes{
      {"universal_checkpoint_info", PyValue::Dict(std::move(info))}});
  SS_ASSIGN_OR_RETURN(const Pickle pickle, Pickle::Parse(WritePickle(root)));
  return DeepSpeedRules::Read(PickleValue(pickle), num_ranks);
}

absl::StatusOr<MergeRule> RuleOf(PyValue::Attributes info,
                                 const std::vector<Shape>& shards) {
  SS_ASSIGN_OR_RETURN(const DeepSpeedRules rules,
                      RulesOf(std::move(info), std::ssize(shards)));
  return rules.RuleOf("w", shards);
}

TEST(DeepSpeedRulesTest, ReadsWhatDeepSpeedWrites) {
  ASSERT_OK_AND_ASSIGN(const OpenedTorch source,
                       OpenTorch(DataPath("deepspeed-autotp.pt")));
  ASSERT_OK_AND_ASSIGN(const DeepSpeedRules rules,
                       DeepSpeedRules::Read(source.torch.root(), 2));
  ASSERT_OK_AND_ASSIGN(const PickleValue shapes,
                       source.torch.root().Get("param_shapes"));
  ASSERT_OK_AND_ASSIGN(const auto ranks, shapes.AsList());
  const auto shards_of = [&ranks](absl::string_view name) {
    std::vector<Shape> shards;
    shards.reserve(ranks.size());
    for (const PickleValue& rank : ranks) {
      shards.push_back(*AsShape(*rank.Get(name)));
    }
    return shards;
  };
  ASSERT_OK_AND_ASSIGN(const auto entries, ranks.front().AsEntries());
  EXPECT_EQ(entries.size(), 30);
  for (const auto& [key, value] : entries) {
    const std::string name(*key.AsString());
    EXPECT_OK(rules.RuleOf(name, shards_of(name))) << name;
  }
  const MergeRule head =
      *rules.RuleOf("lm_head.weight", shards_of("lm_head.weight"));
  EXPECT_EQ(head.map, *JoinedMap({{31, 32}, {30, 32}}, 0, {{31, 30}}));
  EXPECT_EQ(head.padding_rows, 0);
  const char* down = "model.layers.1.mlp.down_proj.weight";
  EXPECT_EQ(rules.RuleOf(down, shards_of(down))->map,
            *JoinedMap({{32, 28}, {32, 28}}, 1, {{28, 28}}));
  const char* norm = "model.norm.weight";
  EXPECT_EQ(rules.RuleOf(norm, shards_of(norm))->map, *CopiedMap({{32}, {32}}));
  // A shard of another shape.
  EXPECT_THAT(rules.RuleOf("lm_head.weight", {{30, 32}, {31, 32}}),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("lm_head.weight"),
                             HasSubstr("shape [31,32], but it has [30,32]"))));
  // Other ranks.
  EXPECT_THAT(
      DeepSpeedRules::Read(source.torch.root(), 3)
          ->RuleOf("lm_head.weight", {{31, 32}, {30, 32}, {1, 32}}),
      StatusIs(StatusCode::kDataLoss, HasSubstr("expected each of the 3")));
}

TEST(DeepSpeedRulesTest, Lists) {
  // None: along dim 0, evenly or not.
  EXPECT_EQ(RuleOf({}, {{3, 2}, {2, 2}})->map,
            *JoinedMap({{3, 2}, {2, 2}}, 0, {{3, 2}}));
  EXPECT_EQ(
      RuleOf({{"parameter_with_row_parallelism_patterns", Strings({"v", "w"})}},
             {{3, 2}, {3, 1}})
          ->map,
      *JoinedMap({{3, 2}, {3, 1}}, 1, {{2, 1}}));
  EXPECT_EQ(
      RuleOf({{"tp_replicated_parameter_patterns", Strings({"w"})}}, {{3}, {3}})
          ->map,
      *CopiedMap({{3}, {3}}));
  const MergeRule two =
      *RuleOf({{"parameter_with_2_sub_params_cat_dim_0", Strings({"w"})}},
              {{4, 1}, {2, 1}});
  EXPECT_EQ(two.map.shape, Shape({6, 1}));
  const std::vector<ShardPiece> expected = {
      {Box{{0, 0}, {1, 1}}, Box{{2, 0}, {1, 1}}},
      {Box{{1, 0}, {1, 1}}, Box{{5, 0}, {1, 1}}}};
  EXPECT_EQ(two.map.ranks[1].pieces, expected);
}

TEST(DeepSpeedRulesTest, VocabularyWithoutPadding) {
  const auto info = [] {
    return PyValue::Attributes{
        {"vocabulary_parameter_patterns", Strings({"w"})},
        {"original_vocab_size", PyValue::Int(3)}};
  };
  const MergeRule rule = *RuleOf(info(), {{2, 4}, {2, 4}, {2, 4}});
  EXPECT_EQ(rule.padding_rows, 3);
  EXPECT_EQ(rule.map.shape, Shape({3, 4}));
  EXPECT_EQ(rule.map.ranks[0].pieces.size(), 1);
  const std::vector<ShardPiece> of_middle = {
      {Box{{0, 0}, {1, 4}}, Box{{2, 0}, {1, 4}}}};
  EXPECT_EQ(rule.map.ranks[1].pieces, of_middle);
  EXPECT_TRUE(rule.map.ranks[2].pieces.empty());
  EXPECT_THAT(RuleOf(info(), {{2}, {2}}),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("two dims")));
  EXPECT_THAT(
      RuleOf({{"vocabulary_parameter_patterns", Strings({"w"})}},
             {{2, 4}, {2, 4}}),
      StatusIs(StatusCode::kDataLoss, HasSubstr("no original_vocab_size")));
}

PyValue Section(const PyValue& shape, int64_t dim) {
  return PyValue::List({PyValue::Dict(
      PyValue::Attributes{{"patterns", Strings({"w"})},
                          {"shape", shape},
                          {"partition_dim", PyValue::Int(dim)}})});
}

PyValue::Attributes Sections(const PyValue& shape, int64_t dim,
                             PyValue::Items widths) {
  return {{"universal_checkpoint_version", PyValue::Float(0.4)},
          {"parameter_with_sub_params", Section(shape, dim)},
          {"sub_param_shard_widths",
           PyValue::Dict(
               PyValue::Attributes{{"w", PyValue::List(std::move(widths))}})}};
}

TEST(DeepSpeedRulesTest, SubParameters) {
  const std::vector<Shape> shards = {{2, 3}, {2, 3}};
  const PyValue shape = PyValue::List({PyValue::Int(-1), Ints({3, 3})});
  EXPECT_EQ(
      RuleOf(Sections(shape, 1, {Ints({2, 1}), Ints({1, 2})}), shards)->map,
      *JoinedMap(shards, 1, {{2, 1}, {1, 2}}));
  const auto refuses = [&](PyValue::Items widths, const char* what) {
    EXPECT_THAT(RuleOf(Sections(shape, 1, std::move(widths)), shards),
                StatusIs(StatusCode::kDataLoss, HasSubstr(what)));
  };
  refuses({Ints({2, 1})}, "do not add up");
  refuses({Ints({2, 2}), Ints({1, 2})}, "do not add up");
  refuses({Ints({1, 2}), Ints({1, 2})}, "expected [2,2]");
  refuses({Ints({3}), Ints({3})}, "one for each of the 2 ranks");
  refuses({Ints({-1, 4}), Ints({1, 2})}, "a width of -1");
  // Before widths were told: equal parts of each.
  EXPECT_EQ(RuleOf({{"parameter_with_sub_params", Section(Ints({3, -1}), 0)}},
                   {{3, 5}, {3, 5}})
                ->map,
            *JoinedMap({{3, 5}, {3, 5}}, 0, {{1, 1}, {1, 1}, {1, 1}}));
  EXPECT_THAT(
      RuleOf({{"parameter_with_sub_params", Section(Ints({2, -1}), 0)}},
             {{3, 5}, {3, 5}}),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("do not share evenly")));
  EXPECT_THAT(RuleOf({{"universal_checkpoint_version", PyValue::Float(0.4)},
                      {"parameter_with_sub_params", Section(shape, 1)}},
                     shards),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("no entry in sub_param_shard_widths")));
  EXPECT_THAT(
      RuleOf({{"parameter_with_sub_params", Section(Ints({3, 4, -1}), 0)}},
             {{3, 5}, {3, 5}}),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("not its own")));
}

TEST(DeepSpeedRulesTest, RefusesByName) {
  EXPECT_THAT(
      RuleOf({{"parameter_to_average_patterns", Strings({"w"})}}, {{3}, {3}}),
      StatusIs(StatusCode::kUnimplemented,
               AllOf(HasSubstr("parameter w"),
                     HasSubstr("parameter_to_average_patterns"))));
  EXPECT_THAT(RuleOf({{"autotp_unsupported_parameter_patterns",
                       PyValue::Dict(PyValue::Attributes{
                           {"^w$", PyValue::Str("of a kind")}})}},
                     {{3}, {3}}),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("of a kind")));
  EXPECT_THAT(
      RuleOf({{"tp_replicated_parameter_patterns", Strings({"w{2}"})}},
             {{3}, {3}}),
      StatusIs(StatusCode::kUnimplemented,
               AllOf(HasSubstr("tp_replicated"), HasSubstr("not understood"))));
  EXPECT_THAT(RuleOf({{"tp_replicated_parameter_patterns", Strings({"w"})}},
                     {{3}, {4}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("rank 1 has it")));
  EXPECT_THAT(RuleOf({}, {{3, 2}, {3, 1}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("split along dim 0")));
  EXPECT_THAT(RuleOf({}, {{}, {}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("split along dim 0")));
  const Pickle empty =
      *Pickle::Parse(WritePickle(PyValue::Dict(PyValue::Attributes{})));
  EXPECT_THAT(DeepSpeedRules::Read(PickleValue(empty), 2),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("no universal_checkpoint_info")));
  const Pickle experts = *Pickle::Parse(WritePickle(PyValue::Dict(
      PyValue::Attributes{{"ds_autoep_layers", PyValue::List({})}})));
  EXPECT_THAT(
      DeepSpeedRules::Read(PickleValue(experts), 2),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("ds_autoep_layers")));
}

// An affine map of w [4,2]: each rank has a row of the first two, and both have
// the last two.
struct AffinePiece {
  std::vector<int64_t> shape;
  int64_t source = 0;
  int64_t dest = 0;
  std::vector<int64_t> locations;
  std::vector<int64_t> strides = {2, 1};
  double scale = 1;
};

PyValue Place(int64_t offset, const std::vector<int64_t>& strides) {
  return PyValue::List({PyValue::Int(offset), Ints(strides)});
}

PyValue Pieces(const std::vector<AffinePiece>& pieces) {
  PyValue::Items items;
  for (const AffinePiece& piece : pieces) {
    PyValue::Attributes entry = {{"shape", Ints(piece.shape)},
                                 {"source", Place(piece.source, piece.strides)},
                                 {"dest", Place(piece.dest, piece.strides)},
                                 {"locations", Ints(piece.locations)}};
    if (piece.scale != 1)
      entry.emplace_back("scale", PyValue::Float(piece.scale));
    items.push_back(PyValue::Dict(std::move(entry)));
  }
  return PyValue::Dict(PyValue::Attributes{{"shard_shape", Ints({3, 2})},
                                           {"pieces", PyValue::List(items)}});
}

absl::StatusOr<MergeRule> AffineRule(const std::vector<AffinePiece>& first,
                                     const std::vector<AffinePiece>& second,
                                     int64_t version = 1) {
  const PyValue ranks = PyValue::Dict(PyValue::Entries{
      {PyValue::Int(0), Pieces(first)}, {PyValue::Int(1), Pieces(second)}});
  return RuleOf(
      {// What the map is told beside, and what it takes precedence of.
       {"parameter_to_average_patterns", Strings({"w"})},
       {"affine_map",
        PyValue::Dict(PyValue::Attributes{
            {"version", PyValue::Int(version)},
            {"params", PyValue::Dict(PyValue::Attributes{
                           {"^w$", PyValue::Dict(PyValue::Attributes{
                                       {"logical_shape", Ints({4, 2})},
                                       {"ranks", ranks}})}})}})}},
      {{3, 2}, {3, 2}});
}

const AffinePiece kShared = {{2, 2}, 4, 2, {0, 1}};

TEST(DeepSpeedAffineTest, PiecesOfOneRankAndOfBoth) {
  ASSERT_OK_AND_ASSIGN(const MergeRule rule,
                       AffineRule({{{1, 2}, 0, 0, {0}}, kShared},
                                  {{{1, 2}, 2, 0, {1}}, kShared}));
  EXPECT_EQ(rule.map.shape, Shape({4, 2}));
  const std::vector<ShardPiece> second = {
      {Box{{0, 0}, {1, 2}}, Box{{1, 0}, {1, 2}}},
      {Box{{1, 0}, {2, 2}}, Box{{2, 0}, {2, 2}}, true}};
  EXPECT_EQ(rule.map.ranks[1].pieces, second);
  EXPECT_FALSE(rule.map.ranks[0].pieces[1].is_copy);
}

TEST(DeepSpeedAffineTest, RefusesWhatDoesNotFit) {
  const AffinePiece a = {{1, 2}, 0, 0, {0}};
  const AffinePiece b = {{1, 2}, 2, 0, {1}};
  const auto refuses = [](const std::vector<AffinePiece>& first,
                          const std::vector<AffinePiece>& second,
                          StatusCode code, const char* what) {
    EXPECT_THAT(
        AffineRule(first, second),
        StatusIs(code, AllOf(HasSubstr("parameter w"), HasSubstr(what))))
        << what;
  };
  const auto wrong = StatusCode::kDataLoss;
  // Two ranks with one row, and none with another.
  refuses({a, kShared}, {{{1, 2}, 0, 0, {1}}, kShared}, wrong,
          "is not the same as");
  refuses({{{1, 2}, 0, 0, {0, 1}}, kShared}, {{{1, 2}, 0, 0, {0, 1}}, kShared},
          wrong, "of the tensor");
  // Overlapping ones that are not the same.
  refuses({{{2, 2}, 0, 0, {0}}, {{1, 2}, 6, 4, {0}}},
          {{{2, 2}, 2, 0, {1}}, {{1, 2}, 0, 4, {1}}}, wrong, "do not make it");
  // A hole in a shard, and a place there that is taken twice.
  refuses({a}, {b, kShared}, wrong, "the shard of rank 0");
  refuses({a, {{2, 2}, 4, 0, {0, 1}}}, {b, kShared}, wrong,
          "the shard of rank 0");
  // Outside.
  refuses({a, {{2, 2}, 6, 2, {0}}}, {b, kShared}, wrong, "outside of shape");
  refuses({a, {{2, 2}, 4, 4, {0}}}, {b, kShared}, wrong, "outside of shape");
  refuses({a, {{2, 2}, -2, 2, {0}}}, {b, kShared}, wrong, "element -2");
  refuses({a, {{2, 2}, 8, 2, {0}}}, {b, kShared}, wrong, "element 8 of 8");
  refuses({a, {{int64_t{1} << 62, 1}, 4, 2, {0}}}, {b, kShared}, wrong,
          "outside of shape");
  // Who has it.
  refuses({a, {{2, 2}, 4, 2, {0}}}, {b, {{2, 2}, 4, 2, {0}}}, wrong,
          "does not name the ranks");
  refuses({a, a, {{1, 2}, 4, 4, {0}}}, {b, kShared}, wrong, "twice");
  // What is no box, and what would have to be computed.
  const auto unknown = StatusCode::kUnimplemented;
  refuses({a, {{2, 2}, 4, 2, {0, 1}, {1, 2}}}, {b, kShared}, unknown, "no box");
  refuses({a, {{4}, 4, 2, {0, 1}, {1}}}, {b, kShared}, unknown, "no box");
  refuses({a, {{2, 2}, 4, 2, {0, 1}, {2, 1}, 0.5}}, {b, kShared}, unknown,
          "scale is 0.5");
  EXPECT_THAT(AffineRule({a, kShared}, {b, kShared}, 2),
              StatusIs(unknown, HasSubstr("version is 2, expected 1")));
}

}  // namespace
}  // namespace shardshift::reshard
