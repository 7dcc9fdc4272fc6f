// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/table.h"

#include <functional>
#include <random>

#include "ckpt/core/coding.h"
#include "ckpt/format/table_builder.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::HasSubstr;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Two tensors over two parts; "w" is [4,6] F32 in columns.
Table IndexTable() {
  Table table;
  table.tensors = {{"e", "weight", DType::kF16, {0, 3}},
                   {"w", "master", DType::kF32, {4, 6}}};
  table.fragments = {
      {0, {{0, 0}, {0, 3}}, 1, Codec::kNone, {}, {}},
      {1, {{0, 0}, {4, 2}}, 0, Codec::kNone, {5, 6}, {{4096, 32, 17}}},
      {1, {{0, 2}, {4, 4}}, 1, Codec::kNone, {7, 8}, {{4096, 64, 18}}}};
  table.step = 7;
  table.parts = {{0, 8192, {1, 2}}, {1, 8192, {3, 4}}};
  table.state = "{}";
  table.record = "[1]";
  return table;
}

absl::StatusOr<Table> Decode(const Table& table) {
  return DecodeIndexTable(AsBytes(EncodeTable(table)));
}

TEST(IndexTable, DecodesToWhatWasEncoded) {
  ASSERT_OK_AND_ASSIGN(const Table decoded, Decode(IndexTable()));
  EXPECT_EQ(decoded, IndexTable());
}

struct Change {
  const char* expected;
  std::function<void(Table&)> apply;
};

class BadIndexTable : public ::testing::TestWithParam<Change> {};

TEST_P(BadIndexTable, IsRefused) {
  Table table = IndexTable();
  GetParam().apply(table);
  EXPECT_THAT(Decode(table),
              StatusIs(kDataLoss, HasSubstr(GetParam().expected)));
}

constexpr int64_t kHuge = int64_t{1} << 62;

INSTANTIATE_TEST_SUITE_P(
    Each, BadIndexTable,
    ::testing::Values(
        Change{"not allowed", [](Table& x) { x.tensors[1].name = "w//b"; }},
        Change{"not allowed", [](Table& x) { x.tensors[1].name = "w/.."; }},
        Change{"not allowed", [](Table& x) { x.tensors[1].name = "w/"; }},
        Change{"a role with '/'", [](Table& x) { x.tensors[1].role = "a/b"; }},
        Change{"lies below e/weight",
               [](Table& x) { x.tensors[1].name = "e/weight/b"; }},
        Change{"lies below e/weight",
               [](Table& x) { x.tensors[1].name = "e/weight"; }},
        Change{"part 2 has no fragment",
               [](Table& x) { x.parts.push_back({2, 8192, {5, 6}}); }},
        Change{"fewer than 4096 bytes",
               [](Table& x) { x.fragments[1].codec = Codec::kShuffleZstd; }},
        Change{"not allowed", [](Table& x) { x.tensors[1].name = ""; }},
        Change{"not allowed", [](Table& x) { x.tensors[1].role = ".."; }},
        Change{"not allowed", [](Table& x) { x.tensors[1].name = "w\n"; }},
        Change{"listed twice",
               [](Table& x) {
                 x.tensors[1].name = "e";
                 x.tensors[1].role = "weight";
               }},
        Change{"64 bits",
               [](Table& x) {
                 x.tensors[1].shape = {kHuge, 6};
               }},
        Change{"63 bits",
               [](Table& x) {
                 x.tensors[1].shape = {kHuge, 1};
               }},
        Change{"outside its shape",
               [](Table& x) { x.fragments[1].box.start[0] = 1; }},
        Change{"\"w\" (master): place beyond 63 bits",
               [](Table& x) { x.fragments[1].box.extent[0] = kHuge; }},
        Change{"is empty", [](Table& x) { x.fragments[1].box.extent[1] = 0; }},
        Change{"no elements",
               [](Table& x) { x.fragments[0].fingerprint = {1}; }},
        Change{"tensor \"e\" (weight) has dtype 17",
               [](Table& x) { x.tensors[0].dtype = static_cast<DType>(17); }},
        Change{"has 0 blocks, expected 1",
               [](Table& x) { x.fragments[1].blocks.clear(); }},
        Change{"do not fit its box",
               [](Table& x) {
                 x.tensors[1].shape = {4, 600};
                 x.fragments[2].box.extent[1] = 598;
                 x.fragments[2].codec = Codec::kShuffleZstd;
                 x.fragments[2].blocks[0].stored_bytes = 0;
               }},
        Change{"codec 2",
               [](Table& x) { x.fragments[1].codec = static_cast<Codec>(2); }},
        Change{"fingerprint",
               [](Table& x) {
                 x.fragments[1].fingerprint.high = kFingerprintModulus;
               }},
        Change{"out of order",
               [](Table& x) { std::swap(x.fragments[1], x.fragments[2]); }},
        Change{"listed twice",
               [](Table& x) { x.fragments[2].box = x.fragments[1].box; }},
        Change{"has no fragment", [](Table& x) { x.fragments.resize(1); }},
        Change{"not listed", [](Table& x) { x.fragments[1].part = 2; }},
        Change{"outside the file",
               [](Table& x) {
                 x.fragments[1].blocks[0].offset_bytes = 8192 - 31;
               }},
        Change{"outside the file",
               [](Table& x) { x.fragments[1].blocks[0].offset_bytes = 4095; }},
        Change{"outside the file",
               [](Table& x) { x.fragments[1].blocks[0].offset_bytes = kHuge; }},
        Change{"beyond 63 bits",
               [](Table& x) {
                 x.fragments[1].blocks[0].offset_bytes = 2 * (kHuge - 1) + 1;
               }},
        Change{"shares bytes",
               [](Table& x) {
                 x.fragments[1].part = 1;
                 x.fragments[1].blocks[0].offset_bytes = 4096 + 63;
               }},
        Change{"listed after",
               [](Table& x) { std::swap(x.parts[0], x.parts[1]); }},
        Change{"nothing holds",
               [](Table& x) {
                 x.fragments[2].box.extent[1] = 3;
                 x.fragments[2].blocks[0].stored_bytes = 48;
               }},
        Change{"overlap", [](Table& x) {
                 x.fragments[1].box.extent[1] = 3;
                 x.fragments[1].blocks[0].stored_bytes = 48;
               }}));

TEST(IndexTable, WantsImagesOfAPageOnAPage) {
  Table table = IndexTable();
  table.parts[0].file_bytes = 1 << 20;
  table.tensors[1].shape = {512, 6};
  table.fragments[1] = {1,      {{0, 0}, {512, 2}}, 0, Codec::kNone,
                        {5, 6}, {{8192, 4096, 17}}};
  table.fragments[2] = {1,      {{0, 2}, {512, 4}}, 0, Codec::kNone,
                        {7, 8}, {{16384, 8192, 18}}};
  table.parts[1].file_bytes = 8192;
  ASSERT_OK(Decode(table));
  table.fragments[2].blocks[0].offset_bytes += 8;
  EXPECT_THAT(Decode(table),
              StatusIs(kDataLoss, HasSubstr("begins within a page")));
}

TEST(IndexTable, TakesNamesThatNest) {
  Table table = IndexTable();
  table.tensors[0].name = "e/x";
  table.tensors[1].name = "e/x/y";
  EXPECT_OK(Decode(table));
}

TEST(DecodeIndexTable, RefusesEveryTruncationAndExtension) {
  const std::string bytes = EncodeTable(IndexTable());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeIndexTable(AsBytes(bytes.substr(0, size))),
                StatusIs(kDataLoss, HasSubstr("table")));
  }
  EXPECT_THAT(DecodeIndexTable(AsBytes(bytes + '\0')),
              StatusIs(kDataLoss, HasSubstr("left over")));
}

// Huge counts and lengths among them: none may crash or take much memory,
// and what decodes means what it says.
TEST(DecodeIndexTable, SurvivesRandomDamage) {
  std::mt19937_64 random(5);
  const std::string good = EncodeTable(IndexTable());
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    for (auto n = 1 + random() % 8; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const absl::StatusOr<Table> table = DecodeIndexTable(AsBytes(bytes));
    if (table.ok()) {
      EXPECT_EQ(EncodeTable(*table), bytes);
    } else {
      EXPECT_EQ(table.status().code(), kDataLoss);
    }
  }
}

TEST(DecodePartTable, RefusesAnIndexAndForeignFragments) {
  Table table = IndexTable();
  EXPECT_THAT(DecodePartTable(AsBytes(EncodeTable(table)), 8192),
              StatusIs(kDataLoss, HasSubstr("index")));
  table.parts.clear();
  table.record.clear();
  EXPECT_THAT(DecodePartTable(AsBytes(EncodeTable(table)), 8192),
              StatusIs(kDataLoss, HasSubstr("part 1")));
}

TEST(TableBuilder, SortsWhateverTheOrderAndTellsThePlaces) {
  const Tensor a = {"a", "x", DType::kU8, {4}};
  const Tensor b = {"b", "x", DType::kU8, {2}};
  TableBuilder builder;
  ASSERT_OK(builder.Add(b, {.box = {{0}, {2}}}));
  ASSERT_OK(builder.Add(a, {.box = {{2}, {2}}}));
  ASSERT_OK(builder.Add(a, {.box = {{0}, {2}}}));
  const auto [table, places] = builder.Build();
  EXPECT_THAT(table.tensors, ::testing::ElementsAre(a, b));
  EXPECT_EQ(table.fragments[0].box.start[0], 0);
  EXPECT_EQ(table.fragments[2].tensor, 1);
  EXPECT_THAT(places, ::testing::ElementsAre(2, 1, 0));
}

TEST(TableBuilder, RefusesATensorOfTwoKinds) {
  TableBuilder builder;
  ASSERT_OK(builder.Add({"a", "x", DType::kU8, {4}}, {}));
  EXPECT_THAT(builder.Add({"a", "x", DType::kU8, {5}}, {}),
              StatusIs(kInvalid, HasSubstr("U8[4] and as U8[5]")));
}

}  // namespace
}  // namespace shardshift::ckpt
