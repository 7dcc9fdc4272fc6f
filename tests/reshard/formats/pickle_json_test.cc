// Values of a pickle through JSON and back.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle_json.h"

#include <limits>
#include <string>
#include <utility>

#include "tests/reshard/formats/pickle_text.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

absl::StatusOr<json> JsonOf(const PyValue& value) {
  absl::StatusOr<Pickle> pickle = Pickle::Parse(WritePickle(value));
  if (!pickle.ok()) return pickle.status();
  return PickleToJson(PickleValue(*pickle));
}

// All kinds that arguments and optimizers' groups have.
PyValue Everything() {
  PyValue::Entries numbers;
  numbers.emplace_back(PyValue::Int(0), PyValue::Str("zero"));
  numbers.emplace_back(PyValue::Int(1), PyValue());
  PyValue::Entries ordered;
  ordered.emplace_back(PyValue::Str("b"), PyValue::Int(2));
  return PyValue::Namespace(
      {{"none", PyValue()},
       {"yes", PyValue::Bool(true)},
       {"large", PyValue::Int(int64_t{1} << 62)},
       {"below", PyValue::Int(-5)},
       {"pi", PyValue::Float(3.14159)},
       {"whole", PyValue::Float(10.0)},
       {"inf", PyValue::Float(std::numeric_limits<double>::infinity())},
       {"text", PyValue::Str("naïve\n")},
       {"bytes", PyValue::Bytes(std::string("\0\xff", 2))},
       {"betas", PyValue::Tuple({PyValue::Float(0.9), PyValue::Float(0.95)})},
       {"list", PyValue::List({PyValue::Int(1), PyValue::List({})})},
       {"numbers", PyValue::Dict(std::move(numbers))},
       {"special", PyValue::Dict(PyValue::Attributes{{"py", PyValue::Int(1)}})},
       {"ordered", PyValue::OrderedDict(std::move(ordered))},
       {"dtype", PyValue::Global("torch", "bfloat16")},
       {"backend", PyValue::Call("megatron.core.transformer.enums",
                                 "AttnBackend", {PyValue::Int(3)})}});
}

TEST(PickleJsonTest, EverythingComesBack) {
  ASSERT_OK_AND_ASSIGN(const json there, JsonOf(Everything()));
  ASSERT_OK_AND_ASSIGN(const PyValue back, PickleFromJson(there));
  ASSERT_OK_AND_ASSIGN(const json again, JsonOf(back));
  EXPECT_EQ(again, there);
  const json& state = there["state"];
  EXPECT_EQ(there["name"], "argparse Namespace");
  EXPECT_EQ(state["betas"]["items"], json::parse("[0.9, 0.95]"));
  // A float stays one.
  EXPECT_TRUE(state["whole"].is_number_float());
  EXPECT_EQ(state["inf"]["value"], "inf");
  EXPECT_EQ(state["dtype"]["name"], "torch bfloat16");
}

TEST(PickleJsonTest, WhatWouldRunIsNotWritten) {
  for (const std::string name :
       {"os system", "builtins eval", "subprocess Popen", "torch.os system",
        "nobody knows", "torch load", "torch\nc os", "torch bfloat16\nR",
        "torch.distributed.launcher.api launch_agent",
        "megatron.core.enums os.system", "megatron.training.utils x"}) {
    const json call = {{"py", "call"}, {"name", name}, {"args", {"x"}}};
    EXPECT_THAT(PickleFromJson(call).status(),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         HasSubstr("it is not written")))
        << name;
    const json global = {{"py", "global"}, {"name", name}};
    EXPECT_THAT(PickleFromJson({{"deep", {global}}}).status(),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         HasSubstr("it is not written")))
        << name;
  }
}

TEST(PickleJsonTest, WhatIsNoFormIsRefused) {
  for (const char* text :
       {R"({"py": 1})", R"({"py": "class"})", R"({"py": "tuple"})",
        R"({"py": "tuple", "items": 3})", R"({"py": "dict", "items": [[1]]})",
        R"({"py": "float", "value": "1"})", R"({"py": "global"})",
        R"({"py": "bytes", "base64": "***"})",
        R"({"py": "call", "name": "torch Size"})", "18446744073709551615"}) {
    EXPECT_THAT(PickleFromJson(json::parse(text)).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("is no value of a pickle")))
        << text;
  }
}

TEST(PickleJsonTest, DepthHasALimit) {
  json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = json::array({deep});
  EXPECT_THAT(PickleFromJson(deep).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("one in the other")));
  PyValue value;
  for (int i = 0; i < 200; ++i) value = PyValue::List({value});
  EXPECT_THAT(JsonOf(value).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("one in the other")));
}

TEST(PickleJsonTest, WhatLiesElsewhereIsRefused) {
  const PyValue id = PyValue::PersistentId(PyValue::Tuple({}));
  EXPECT_THAT(
      JsonOf(PyValue::List({id})).status(),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("is not kept")));
}

}  // namespace
}  // namespace shardshift::reshard
