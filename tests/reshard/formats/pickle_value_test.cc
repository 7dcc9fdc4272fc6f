// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/reshard/formats/pickle_text.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text(const std::string& text) {
  return absl::StrCat("\x8c", std::string(1, static_cast<char>(text.size())),
                      text);
}

// {"optimizer": {"param_groups": [{"lr": "x", 3: None}]}}
std::string Nested() {
  return absl::StrCat("}", Text("optimizer"), "}", Text("param_groups"), "]}",
                      Text("lr"), Text("x"), "sK\3Nsass.");
}

TEST(PickleValue, ErrorsNameThePath) {
  const Pickle pickle = Parsed(Nested());
  const PickleValue root(pickle);
  ASSERT_OK_AND_ASSIGN(const PickleValue optimizer, root.Get("optimizer"));
  ASSERT_OK_AND_ASSIGN(const PickleValue groups, optimizer.Get("param_groups"));
  ASSERT_OK_AND_ASSIGN(const PickleValue group, groups.At(0));
  ASSERT_OK_AND_ASSIGN(const PickleValue lr, group.Get("lr"));
  EXPECT_THAT(lr.AsDouble(),
              StatusIs(StatusCode::kDataLoss,
                       "optimizer.param_groups[0].lr is a string, expected a "
                       "number"));
  EXPECT_THAT(group.Get("wd"),
              StatusIs(StatusCode::kNotFound,
                       "optimizer.param_groups[0] has no \"wd\""));
  EXPECT_THAT(root.AsInt(), StatusIs(StatusCode::kDataLoss,
                                     "the pickle is a dict, expected an int"));
  ASSERT_OK_AND_ASSIGN(const auto entries, group.AsEntries());
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(entries[1].second.path(), "optimizer.param_groups[0][3]");
}

TEST(PickleValue, Scalars) {
  const Pickle pickle =
      Parsed(Raw("(K\7G\x3f\xf8\0\0\0\0\0\0\x88\x8c\1sC\1bt."));
  ASSERT_OK_AND_ASSIGN(const auto items, PickleValue(pickle).AsList());
  EXPECT_EQ(items[0].AsInt().value(), 7);
  EXPECT_EQ(items[0].AsDouble().value(), 7.0);
  EXPECT_EQ(items[1].AsDouble().value(), 1.5);
  EXPECT_TRUE(items[2].AsBool().value());
  EXPECT_EQ(items[3].AsString().value(), "s");
  EXPECT_EQ(items[4].AsBytes().value(), "b");
  EXPECT_THAT(items[1].AsInt(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("[1] is a float")));
  EXPECT_THAT(items[0].AsBool(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("expected a bool")));
  EXPECT_THAT(items[0].AsString(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("expected a string")));
  EXPECT_THAT(items[0].AsBytes(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("expected bytes")));
}

TEST(PickleValue, BytesOfProtocol2) {
  const std::string encode = "c_codecs\nencode\n";
  const Pickle pickle = Parsed(absl::StrCat(encode, Text("a\xc3\xbf\xc2\x80"),
                                            Text("latin1"), "\x86R."));
  EXPECT_EQ(PickleValue(pickle).AsBytes().value(), "a\xff\x80");
  const Pickle array =
      Parsed(absl::StrCat("c__builtin__\nbytearray\n", encode, Text("a"),
                          Text("latin1"), "\x86R\x85R."));
  EXPECT_EQ(PickleValue(array).AsBytes().value(), "a");
  const Pickle wide =
      Parsed(absl::StrCat(encode, Text("\xc4\x80"), Text("latin1"), "\x86R."));
  EXPECT_THAT(PickleValue(wide).AsBytes(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("beyond 255")));
  const Pickle other =
      Parsed(absl::StrCat(encode, Text("a"), Text("utf-7"), "\x86R."));
  EXPECT_THAT(PickleValue(other).AsBytes(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("utf-7")));
}

TEST(PickleValue, Sequences) {
  for (const char* bytes :
       {"K\1K\2\x86.", "](K\1K\2e.", "(K\1K\2\x91.",
        "ctorch\nSize\nK\1K\2\x86\x85R.", "c__builtin__\nset\n](K\1K\2e\x85R.",
        "ccollections\ndeque\n)R(K\1K\2e."}) {
    const Pickle pickle = Parsed(bytes);
    EXPECT_THAT(PickleValue(pickle).AsInts().value(), ElementsAre(1, 2));
  }
  const Pickle size = Parsed("ctorch\nSize\n)R.");
  EXPECT_THAT(PickleValue(size).AsList(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("torch.Size")));
  const Pickle none = Parsed("N.");
  EXPECT_THAT(PickleValue(none).AsList(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("expected a list")));
  const Pickle pair = Parsed("K\1K\2\x86.");
  EXPECT_THAT(PickleValue(pair).At(2),
              StatusIs(StatusCode::kDataLoss, HasSubstr("3 items or more")));
}

TEST(PickleValue, Mappings) {
  for (const char* bytes :
       {"}\x8c\1aK\1s.", "ccollections\nOrderedDict\n)R\x8c\1aK\1s.",
        "ccollections\nCounter\n}\x8c\1aK\1s\x85R."}) {
    const Pickle pickle = Parsed(bytes);
    const PickleValue root(pickle);
    EXPECT_TRUE(root.IsMapping());
    EXPECT_EQ(root.Get("a")->AsInt().value(), 1);
    EXPECT_FALSE(root.Find("b")->has_value());
  }
  const Pickle empty = Parsed("ccollections\nOrderedDict\n)R.");
  EXPECT_TRUE(PickleValue(empty).IsMapping());
  const Pickle twice = Parsed("}(\x8c\1aK\1\x8c\1aK\2u.");
  EXPECT_THAT(PickleValue(twice).Get("a"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("\"a\" twice")));
  const Pickle list = Parsed("].");
  EXPECT_FALSE(PickleValue(list).IsMapping());
  EXPECT_THAT(PickleValue(list).Get("a"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("is a list")));
  EXPECT_THAT(PickleValue(list).AsEntries(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("is a list")));
}

TEST(PickleValue, Attributes) {
  const std::string made = "cargparse\nNamespace\n)\x81";
  const Pickle plain = Parsed(absl::StrCat(made, "}\x8c\1aK\1sb."));
  EXPECT_EQ(PickleValue(plain).Attribute("a")->AsInt().value(), 1);
  EXPECT_THAT(PickleValue(plain).Attribute("b"),
              StatusIs(StatusCode::kNotFound, HasSubstr("attribute \"b\"")));
  const Pickle slots = Parsed(absl::StrCat(made,
                                           "N}\x8c\1aK\1s\x86"
                                           "b."));
  EXPECT_EQ(PickleValue(slots).Attribute("a")->AsInt().value(), 1);
  EXPECT_EQ(PickleValue(slots).Attributes()->size(), 1);
  const Pickle bare = Parsed(absl::StrCat(made, "."));
  EXPECT_FALSE(PickleValue(bare).FindAttribute("a")->has_value());
  const Pickle other = Parsed(absl::StrCat(made, "K\1b."));
  EXPECT_THAT(PickleValue(other).Attribute("a"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("with attributes")));
  const Pickle none = Parsed("N.");
  EXPECT_THAT(PickleValue(none).Attribute("a"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("an object")));
}

TEST(PickleValue, EnumsInBothForms) {
  const std::string type = "cmegatron.core.enums\nModelType\n";
  const Pickle by_name = Parsed(absl::StrCat(
      "c__builtin__\ngetattr\n", type, Text("encoder_or_decoder"), "\x86R."));
  ASSERT_OK_AND_ASSIGN(const auto named, PickleValue(by_name).AsEnum());
  EXPECT_EQ(named.type, "ModelType");
  EXPECT_EQ(named.name, "encoder_or_decoder");
  const Pickle by_value = Parsed(absl::StrCat(type, "K\1\x85R."));
  ASSERT_OK_AND_ASSIGN(const auto valued, PickleValue(by_value).AsEnum());
  EXPECT_EQ(valued.type, "ModelType");
  EXPECT_EQ(valued.value->AsInt().value(), 1);
  const Pickle none = Parsed("N.");
  EXPECT_THAT(PickleValue(none).AsEnum(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("enum")));
}

TEST(PickleValue, Paths) {
  const Pickle pickle = Parsed(absl::StrCat("cpathlib\nPosixPath\n(", Text("/"),
                                            Text("a"), Text("b"), "tR."));
  EXPECT_EQ(PickleValue(pickle).AsPath().value(), "/a/b");
}

TEST(PickleValue, WalksInOrder) {
  const Pickle pickle = Parsed(Nested());
  std::vector<std::string> paths;
  EXPECT_OK(WalkPickle(PickleValue(pickle), {},
                       [&](const PickleValue& value, int64_t) {
                         paths.push_back(value.path());
                         return true;
                       }));
  EXPECT_THAT(paths, ElementsAre("", "optimizer", "optimizer.param_groups",
                                 "optimizer.param_groups[0]",
                                 "optimizer.param_groups[0].lr",
                                 "optimizer.param_groups[0][3]"));
}

absl::Status WalkAll(const Pickle& pickle) {
  return WalkPickle(PickleValue(pickle), {.max_visits = 10'000},
                    [](const PickleValue&, int64_t) { return true; });
}

TEST(PickleValue, WalkOfACycleEnds) {
  EXPECT_THAT(WalkAll(Parsed("]q\1h\1a.")),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("256")));
}

// Sixty tuples, each of the one before it twice: 2^60 values, if one walks.
TEST(PickleValue, WalkOfABombEnds) {
  std::string bytes = ")";
  for (int i = 0; i < 60; ++i) bytes += "2\x86";
  const Pickle pickle = Parsed(bytes + ".");
  EXPECT_EQ(pickle.num_nodes(), 61);
  EXPECT_THAT(WalkAll(pickle), StatusIs(StatusCode::kResourceExhausted,
                                        HasSubstr("10000 values")));
}

}  // namespace
}  // namespace shardshift::reshard
