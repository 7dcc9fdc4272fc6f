// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_plain.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "reshard/formats/torch_writer.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/generic_sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Without ZeRO: numbers, no names.
class PlainDeepSpeedTest : public ::testing::Test {
 protected:
  // Parameters of these shapes in the module, and which group has each.
  void Write(const std::vector<int64_t>& groups) const {
    TorchText text;
    PyValue::Entries module;
    PyValue::Entries states;
    std::vector<PyValue::Items> numbers(2);
    for (size_t i = 0; i < groups.size(); ++i) {
      module.emplace_back(PyValue::Str(absl::StrCat("p", i)),
                          text.Flat(Count(float(i), 2)));
    }
    for (int64_t g = 0; g < 2; ++g) {
      for (size_t i = 0; i < groups.size(); ++i) {
        if (groups[i] != g) continue;
        const auto number = PyValue::Int(std::ssize(states));
        numbers[g].push_back(number);
        states.emplace_back(
            number, PyValue::Dict(PyValue::Attributes{
                        {"step", PyValue::Int(5)},
                        {"exp_avg", text.Flat(Count(10 + float(i), 2))}}));
      }
    }
    PyValue::Items param_groups;
    for (PyValue::Items& of_group : numbers) {
      param_groups.push_back(PyValue::Dict(
          PyValue::Attributes{{"params", PyValue::List(std::move(of_group))}}));
    }
    text.Write(
        ckpt::JoinPath(directory_.path(), "mp_rank_00_model_states.pt"),
        PyValue::Dict(PyValue::Attributes{
            {"module", PyValue::OrderedDict(std::move(module))},
            {"optimizer",
             PyValue::Dict(PyValue::Attributes{
                 {"state", PyValue::Dict(std::move(states))},
                 {"param_groups", PyValue::List(std::move(param_groups))}})},
            {"global_steps", PyValue::Int(5)}}));
  }

  const ckpt::TempDir directory_;
};

TEST_F(PlainDeepSpeedTest, ParametersOfAShapeAreInTheModulesOrder) {
  Write({0, 0, 0});
  ASSERT_OK_AND_ASSIGN(const OpenedSource source,
                       OpenGeneric(directory_.path()));
  const auto found = FloatsOf(source);
  EXPECT_EQ(found.size(), 6);
  for (int i = 0; i < 3; ++i) {
    const std::string prefix = absl::StrCat("optim.state.p", i, ".");
    EXPECT_EQ(found.at(absl::StrCat(prefix, "master")), Count(float(i), 2));
    EXPECT_EQ(found.at(absl::StrCat(prefix, "exp_avg")),
              Count(10 + float(i), 2));
  }
  EXPECT_EQ(source.notes.size(), 1);
}

TEST_F(PlainDeepSpeedTest, RefusesToGuess) {
  Write({0, 1, 0});  // which of them is in the other group?
  EXPECT_THAT(OpenGeneric(directory_.path()),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("mp_rank_00_model_states.pt"),
                             HasSubstr("in several groups"))));
  Write({0, 2, 0});  // one is frozen
  EXPECT_THAT(
      OpenGeneric(directory_.path()),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("the module 3")));
}

}  // namespace
}  // namespace shardshift::reshard
