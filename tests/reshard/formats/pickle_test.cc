// The parser, operation by operation, and one test for each refusal.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/reshard/formats/pickle_text.h"
#include "tests/testutil/heap_peak.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

int64_t ParsedInt(const std::string& bytes) {
  const Pickle pickle = Parsed(bytes);
  EXPECT_EQ(pickle.kind(pickle.root()), PickleKind::kInt);
  return pickle.Int(pickle.root());
}

void ExpectRefusal(const std::string& bytes, StatusCode code,
                   const std::string& message) {
  EXPECT_THAT(Pickle::Parse(bytes), StatusIs(code, HasSubstr(message)))
      << testing::PrintToString(bytes);
}

TEST(Pickle, Ints) {
  EXPECT_EQ(ParsedInt(Raw("K\xff.")), 255);
  EXPECT_EQ(ParsedInt(Raw("M\x34\x12.")), 0x1234);
  EXPECT_EQ(ParsedInt(Raw("J\xfe\xff\xff\xff.")), -2);
  EXPECT_EQ(ParsedInt(Raw("\x8a\x00.")), 0);
  EXPECT_EQ(ParsedInt(Raw("\x8a\x01\x80.")), -128);
  EXPECT_EQ(ParsedInt(Raw("\x8a\x05\x00\x00\x00\x00\x01.")), int64_t{1} << 32);
  EXPECT_EQ(ParsedInt(Raw("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.")),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ParsedInt(Raw("\x8b\x02\x00\x00\x00\xff\x7f.")), 32767);
}

TEST(Pickle, IntBeyond64BitsStaysBytes) {
  const Pickle pickle =
      Parsed(Raw("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0."));
  EXPECT_EQ(pickle.kind(pickle.root()), PickleKind::kBigInt);
  EXPECT_EQ(pickle.Text(pickle.root()),
            Raw("\xff\xff\xff\xff\xff\xff\xff\xff\0"));
}

TEST(Pickle, FloatsAreBigEndian) {
  const Pickle pickle = Parsed(Raw("G\x3f\xf8\0\0\0\0\0\0."));
  ASSERT_EQ(pickle.kind(pickle.root()), PickleKind::kFloat);
  EXPECT_EQ(pickle.Float(pickle.root()), 1.5);
}

TEST(Pickle, NoneAndBools) {
  EXPECT_EQ(Parsed("N.").kind(0), PickleKind::kNone);
  EXPECT_TRUE(Parsed("\x88.").Bool(0));
  EXPECT_FALSE(Parsed("\x89.").Bool(0));
}

TEST(Pickle, Texts) {
  for (const std::string& bytes :
       {Raw("\x8c\x03\xc3\xa9!."), Raw("X\x03\0\0\0\xc3\xa9!."),
        Raw("\x8d\x03\0\0\0\0\0\0\0\xc3\xa9!."), Raw("U\x03\xc3\xa9!."),
        Raw("T\x03\0\0\0\xc3\xa9!.")}) {
    const Pickle pickle = Parsed(bytes);
    EXPECT_EQ(pickle.kind(0), PickleKind::kString);
    EXPECT_EQ(pickle.Text(0), "\xc3\xa9!");
  }
  for (const std::string& bytes :
       {Raw("C\x02\xff\0."), Raw("B\x02\0\0\0\xff\0."), Raw("U\x02\xff\0."),
        Raw("\x8e\x02\0\0\0\0\0\0\0\xff\0."),
        Raw("\x96\x02\0\0\0\0\0\0\0\xff\0.")}) {
    const Pickle pickle = Parsed(bytes);
    EXPECT_EQ(pickle.kind(0), PickleKind::kBytes);
    EXPECT_EQ(pickle.Text(0), Raw("\xff\0"));
  }
}

std::vector<int64_t> RootInts(const std::string& bytes, PickleKind kind) {
  const Pickle pickle = Parsed(bytes);
  EXPECT_EQ(pickle.kind(pickle.root()), kind);
  std::vector<int64_t> ints;
  for (const Pickle::Id id : pickle.Items(pickle.root())) {
    ints.push_back(pickle.Int(id));
  }
  return ints;
}

TEST(Pickle, Containers) {
  EXPECT_THAT(RootInts(").", PickleKind::kTuple), ElementsAre());
  EXPECT_THAT(RootInts("K\1\x85.", PickleKind::kTuple), ElementsAre(1));
  EXPECT_THAT(RootInts("K\1K\2\x86.", PickleKind::kTuple), ElementsAre(1, 2));
  EXPECT_THAT(RootInts("K\1K\2K\3\x87.", PickleKind::kTuple),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(RootInts("(K\1K\2K\3K\4t.", PickleKind::kTuple),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(RootInts("].", PickleKind::kList), ElementsAre());
  EXPECT_THAT(RootInts("](K\1K\2e(K\3K\4eK\5a.", PickleKind::kList),
              ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(RootInts("}K\1K\2s(K\3K\4K\5K\6u.", PickleKind::kDict),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(RootInts("\x8f(K\1K\2\x90.", PickleKind::kSet),
              ElementsAre(1, 2));
  EXPECT_THAT(RootInts("(K\1K\2\x91.", PickleKind::kSet), ElementsAre(1, 2));
}

// Lists that grow in turn keep their own items.
TEST(Pickle, ItemsThatCameInPieces) {
  const Pickle pickle = Parsed("(]q\1]q\2h\1K\1ah\2K\2ah\1K\3ah\2K\4at.");
  const auto lists = pickle.Items(pickle.root());
  ASSERT_EQ(lists.size(), 6);
  const auto ints = [&](Pickle::Id list) {
    std::vector<int64_t> values;
    for (const Pickle::Id id : pickle.Items(list)) {
      values.push_back(pickle.Int(id));
    }
    return values;
  };
  EXPECT_THAT(ints(lists[0]), ElementsAre(1, 3));
  EXPECT_THAT(ints(lists[1]), ElementsAre(2, 4));
}

TEST(Pickle, MemoSharesNodes) {
  const Pickle pickle = Parsed("(]q\1h\1]\x94h\2t.");
  const auto items = pickle.Items(pickle.root());
  ASSERT_EQ(items.size(), 4);
  EXPECT_EQ(items[0], items[1]);
  EXPECT_EQ(items[2], items[3]);
  EXPECT_NE(items[0], items[2]);
}

TEST(Pickle, MayContainItself) {
  const Pickle pickle = Parsed("]q\1h\1a.");
  EXPECT_THAT(pickle.Items(pickle.root()), ElementsAre(pickle.root()));
}

TEST(Pickle, PopsAndDuplicates) {
  EXPECT_THAT(RootInts("K\1K\2"
                       "0"
                       "2\x86.",
                       PickleKind::kTuple),
              ElementsAre(1, 1));
  EXPECT_THAT(RootInts("K\7(K\1K\2"
                       "1\x85.",
                       PickleKind::kTuple),
              ElementsAre(7));
  EXPECT_THAT(RootInts("K\7(0\x85.", PickleKind::kTuple), ElementsAre(7));
}

TEST(Pickle, ObjectsAreNotMade) {
  const Pickle pickle =
      Parsed(Raw("cargparse\nNamespace\n)\x81}X\x01\0\0\0aK\5sb."));
  const Pickle::Id root = pickle.root();
  ASSERT_TRUE(pickle.IsObjectOf(root, "argparse", "Namespace"));
  EXPECT_EQ(pickle.kind(pickle.Args(root)), PickleKind::kTuple);
  EXPECT_FALSE(pickle.Kwargs(root).has_value());
  ASSERT_TRUE(pickle.State(root).has_value());
  EXPECT_EQ(pickle.kind(*pickle.State(root)), PickleKind::kDict);
  EXPECT_THAT(pickle.Items(root), ElementsAre());
}

TEST(Pickle, ObjectsWithKeywordsItemsAndKeys) {
  const Pickle with_keywords =
      Parsed(Raw("\x8c\x05torch\x8c\x04Size\x93)}\x92."));
  EXPECT_TRUE(with_keywords.IsObjectOf(with_keywords.root(), "torch", "Size"));
  EXPECT_TRUE(with_keywords.Kwargs(with_keywords.root()).has_value());

  const Pickle deque = Parsed("ccollections\ndeque\n)RK\1a(K\2e.");
  EXPECT_FALSE(deque.HasPairs(deque.root()));
  EXPECT_EQ(deque.Items(deque.root()).size(), 2);

  const Pickle dict = Parsed("ccollections\nOrderedDict\n)RK\1K\2s}b.");
  EXPECT_TRUE(dict.HasPairs(dict.root()));
  EXPECT_EQ(dict.Items(dict.root()).size(), 2);
}

TEST(Pickle, PersistentIds) {
  const Pickle pickle = Parsed("K\7\x85Q.");
  ASSERT_EQ(pickle.kind(pickle.root()), PickleKind::kPersistentId);
  const Pickle::Id id = pickle.PersistentId(pickle.root());
  EXPECT_EQ(pickle.Int(pickle.Items(id)[0]), 7);
}

TEST(Pickle, BuiltinsHaveOneName) {
  const Pickle pickle = Parsed("c__builtin__\nset\n.");
  EXPECT_TRUE(pickle.IsGlobal(pickle.root(), "builtins", "set"));
}

TEST(Pickle, ProtocolAndFrames) {
  EXPECT_OK(Pickle::Parse(Raw("\x80\5\x95\2\0\0\0\0\0\0\0N.")));
  ExpectRefusal("\x80\6N.", StatusCode::kDataLoss, "protocol 6");
  ExpectRefusal(Raw("\x95\3\0\0\0\0\0\0\0N."), StatusCode::kDataLoss, "frame");
}

TEST(Pickle, RefusesWhatIsCut) {
  ExpectRefusal("", StatusCode::kDataLoss, "without a STOP");
  ExpectRefusal("N", StatusCode::kDataLoss, "without a STOP");
  ExpectRefusal("K", StatusCode::kDataLoss, "needs 1 more bytes, 0 are left");
  ExpectRefusal(Raw("X\x05\0\0\0ab."), StatusCode::kDataLoss,
                "needs 5 more bytes, 3 are left");
  ExpectRefusal(Raw("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."),
                StatusCode::kDataLoss, "more bytes");
  ExpectRefusal("ctorch\nSize", StatusCode::kDataLoss, "line does not end");
}

TEST(Pickle, RefusesAStackThatDoesNotFit) {
  ExpectRefusal(".", StatusCode::kDataLoss, "0 values and 0 marks are left");
  ExpectRefusal("NN.", StatusCode::kDataLoss, "2 values");
  ExpectRefusal("N(.", StatusCode::kDataLoss, "1 marks");
  ExpectRefusal("N.N", StatusCode::kDataLoss, "1 bytes follow");
  ExpectRefusal("0.", StatusCode::kDataLoss, "nothing is on the stack");
  ExpectRefusal(
      "N(0"
      "0"
      "0.",
      StatusCode::kDataLoss, "nothing is on the stack");
  ExpectRefusal("](a.", StatusCode::kDataLoss, "nothing is on the stack");
  ExpectRefusal("Nt.", StatusCode::kDataLoss, "no mark");
  ExpectRefusal("N1.", StatusCode::kDataLoss, "no mark");
  ExpectRefusal("]e.", StatusCode::kDataLoss, "no mark");
  ExpectRefusal("N\x87.", StatusCode::kDataLoss, "too few items");
  ExpectRefusal("N(N\x86.", StatusCode::kDataLoss, "too few items");
}

TEST(Pickle, RefusesABadMemo) {
  ExpectRefusal("h\1.", StatusCode::kDataLoss, "memo index 1 was never set");
  ExpectRefusal("Nq\2h\1.", StatusCode::kDataLoss, "was never set");
  ExpectRefusal("q\1.", StatusCode::kDataLoss, "nothing is on the stack");
  ExpectRefusal(Raw("Nr\xff\xff\xff\xff."), StatusCode::kDataLoss,
                "memo index 4294967295 in a pickle of 7 bytes");
}

TEST(Pickle, RefusesWhatDoesNotGoTogether) {
  ExpectRefusal("NK\1a.", StatusCode::kDataLoss, "items put into None");
  ExpectRefusal("}K\1a.", StatusCode::kDataLoss, "items put into a dict");
  ExpectRefusal("]K\1K\2s.", StatusCode::kDataLoss, "put into a list");
  ExpectRefusal("}(K\1u.", StatusCode::kDataLoss, "without a value");
  ExpectRefusal("ccollections\ndeque\n)RK\1aK\1K\2s.", StatusCode::kDataLoss,
                "both items and keys");
  ExpectRefusal("N)R.", StatusCode::kDataLoss, "a call of None");
  ExpectRefusal("ctorch\nSize\nNR.", StatusCode::kDataLoss,
                "arguments that are None");
  ExpectRefusal("ctorch\nSize\n)N\x92.", StatusCode::kDataLoss,
                "keyword arguments");
  ExpectRefusal("]Nb.", StatusCode::kDataLoss, "state for a list");
  ExpectRefusal("ctorch\nSize\n)R}b}b.", StatusCode::kDataLoss,
                "state for an object that has it");
  ExpectRefusal("NN\x93.", StatusCode::kDataLoss, "name is no string");
  ExpectRefusal(Raw("X\x01\0\0\0\xff."), StatusCode::kDataLoss, "not UTF-8");
  ExpectRefusal(Raw("X\x03\0\0\0\xed\xa0\x80."), StatusCode::kDataLoss,
                "not UTF-8");
}

TEST(Pickle, RefusesOtherOperations) {
  for (const char opcode : std::string("IFLSVPiold\x82\x83\x84\x97\x98\xfe")) {
    EXPECT_EQ(Pickle::Parse(std::string("N") + opcode + ".").status().code(),
              StatusCode::kUnimplemented)
        << int{opcode};
  }
  ExpectRefusal("NI", StatusCode::kUnimplemented, "opcode 0x49");
}

TEST(Pickle, RefusesAttacksByName) {
  for (const char* global :
       {"os\nsystem", "posix\nsystem", "nt\nsystem", "sys\nexit",
        "subprocess\nPopen", "os.path\njoin", "builtins\neval",
        "builtins\nexec", "builtins\n__import__", "builtins\nopen",
        "megatron.training\nos.system", "megatron.training\nsys"}) {
    std::string name = global;
    std::replace(name.begin(), name.end(), '\n', '.');
    ExpectRefusal(absl::StrCat("c", global, "\n."),
                  StatusCode::kPermissionDenied, name);
  }
}

TEST(Pickle, RefusesUnknownGlobals) {
  for (const char* global :
       {"builtins\nmap", "functools\npartial", "torch\nload", "torch\nhub",
        "torch._utils\n_import_dotted_name", "megatron\nx", "numpy\nload"}) {
    ExpectRefusal(absl::StrCat("c", global, "\n."),
                  StatusCode::kPermissionDenied,
                  "none of the classes and functions known");
  }
}

TEST(Pickle, CallersChooseWhatIsAllowed) {
  const PickleOptions options = {
      .is_allowed = [](absl::string_view, absl::string_view) { return true; }};
  EXPECT_OK(Pickle::Parse("cmine\nThing\n.", options));
  EXPECT_THAT(Pickle::Parse("cos\nsystem\n.", options),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("os.system")));
}

TEST(Pickle, HasLimits) {
  EXPECT_THAT(Pickle::Parse("NN.", {.max_bytes = 2}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("3 bytes")));
  EXPECT_THAT(Pickle::Parse("NN.", {.max_nodes = 1}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("1 values")));
  EXPECT_THAT(
      Pickle::Parse(Raw("C\3abc."), {.max_text_bytes = 2}),
      StatusIs(StatusCode::kResourceExhausted, HasSubstr("bytes of 3 bytes")));
}

// The operations that give the most for a byte, a million times.
TEST(Pickle, TakesMemoryInProportion) {
  constexpr int kTimes = 1'000'000;
  const auto repeated = [](absl::string_view what) {
    std::string bytes;
    for (int i = 0; i < kTimes; ++i) absl::StrAppend(&bytes, what);
    return bytes;
  };
  const std::string inputs[] = {
      repeated("]"),                             // nodes and stack
      repeated("2"),                             // stack
      absl::StrCat("N", repeated("\x85"), "."),  // nodes and edges
      absl::StrCat("]q\1]q\2\x86", repeated("h\1Na0h\2Na0"), "."),  // segments
      absl::StrCat("Nr", Raw("\x40\x42\x0f\0"), repeated("("), "."),  // memo
      absl::StrCat("ctorch\nSize\nq\1)q\2", repeated("h\1h\2R0"), "."),
  };
  for (const std::string& input : inputs) {
    const auto num_bytes = static_cast<int64_t>(input.size());
    const HeapPeak peak;
    Pickle::Parse(input).status().IgnoreError();
    EXPECT_LT(peak.bytes(), 80 * num_bytes) << input.substr(0, 30);
  }
}

}  // namespace
}  // namespace shardshift::reshard
