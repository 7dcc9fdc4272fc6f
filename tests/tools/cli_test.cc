// SPDX-License-Identifier: Apache-2.0
#include "tools/cli.h"

#include <string>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift {
namespace {

using ::testing::HasSubstr;

struct Values {
  int64_t steps = -1;
  double rate = -1;
  std::vector<std::string> names;
};

struct Outcome {
  int code = 0;
  Values values;
  std::string err;
};

// Runs a program of two numbers and a list with `arguments`; its action gives
// `result`.
Outcome RunProgram(std::vector<std::string> arguments,
                   const absl::StatusOr<int>& result = kExitDone) {
  Outcome outcome;
  const std::unique_ptr<CLI::App> app = MakeCli("program", "For a test.");
  app->add_option("--train-steps", outcome.values.steps)
      ->transform(IntIn(0, 1000));
  app->add_option("--rate", outcome.values.rate)->transform(NumberIn(0, 1));
  app->add_option("--names", outcome.values.names);
  std::string program = "program";
  std::vector<char*> argv = {program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStderr();
  outcome.code = RunCli(*app, static_cast<int>(argv.size()), argv.data(),
                        [&] { return result; });
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(Printable, HasNoCharacterThatCommandsATerminal) {
  EXPECT_EQ(Printable(std::string("a\0\x1b[2J\r\x7f z\n\xc3\xa4", 13)),
            "a\\x00\\x1b[2J\\x0d\\x7f z\n\xc3\xa4");
}

TEST(RunCli, TakesDashesAndUnderscoresWithAndWithoutEquals) {
  EXPECT_EQ(RunProgram({"--train-steps", "7"}).values.steps, 7);
  EXPECT_EQ(RunProgram({"--train_steps=8"}).values.steps, 8);
}

TEST(RunCli, LetsTheLastOfARepeatedFlagWin) {
  EXPECT_EQ(RunProgram({"--train-steps=1", "--train_steps=2"}).values.steps, 2);
}

TEST(RunCli, TakesAllValuesOfAList) {
  EXPECT_THAT(RunProgram({"--names", "a_b", "c"}).values.names,
              ::testing::ElementsAre("a_b", "c"));
}

TEST(RunCli, NamesTheNearestFlagForAnUnknownOne) {
  const Outcome outcome = RunProgram({"--train-step=7"});
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_EQ(outcome.err,
            "error: unknown flag --train-step; the nearest known one is "
            "--train-steps\n");
}

TEST(RunCli, NamesTheFlagThatAnUnknownOneBegins) {
  EXPECT_EQ(RunProgram({"--train"}).err,
            "error: unknown flag --train; the nearest known one is "
            "--train-steps\n");
}

TEST(RunCli, NamesNoFlagWhereNoneIsNear) {
  for (const char* far : {"--x", "--colour", "--trainer-parallelism", "-"}) {
    const Outcome outcome = RunProgram({far});
    EXPECT_EQ(outcome.code, kExitRefused) << far;
    EXPECT_THAT(outcome.err, Not(HasSubstr("nearest"))) << far;
    EXPECT_THAT(outcome.err, HasSubstr("see --help")) << far;
  }
}

TEST(RunCli, ReadsDecimalNumbersOnly) {
  EXPECT_EQ(RunProgram({"--train-steps", "010"}).values.steps, 10);
  for (const char* bad : {"0x10", "1e2", "1.5", "", "1001", "-1", "ten",
                          "99999999999999999999"}) {
    const Outcome outcome = RunProgram({"--train-steps=" + std::string(bad)});
    EXPECT_EQ(outcome.code, kExitRefused) << bad;
    EXPECT_THAT(outcome.err, HasSubstr("error: --train-steps")) << bad;
  }
}

TEST(RunCli, RefusesNumbersThatAreNone) {
  EXPECT_EQ(RunProgram({"--rate", "2.5e-1"}).values.rate, 0.25);
  for (const char* bad : {"nan", "inf", "1e999", "1.01", "-0.1", "x"}) {
    const Outcome outcome = RunProgram({"--rate=" + std::string(bad)});
    EXPECT_EQ(outcome.code, kExitRefused) << bad;
    EXPECT_THAT(outcome.err, HasSubstr("--rate: expected a number")) << bad;
  }
}

TEST(RunCli, TellsRefusedInputFromFailedWork) {
  const Outcome refused = RunProgram({}, absl::NotFoundError("no such run"));
  EXPECT_EQ(refused.code, kExitRefused);
  EXPECT_EQ(refused.err, "error: no such run\n");
  EXPECT_EQ(RunProgram({}, absl::DataLossError("x")).code, kExitFailed);
  EXPECT_EQ(RunProgram({}, absl::ResourceExhaustedError("x")).code,
            kExitFailed);
  EXPECT_EQ(RunProgram({}, absl::InternalError("x")).code, kExitFailed);
  EXPECT_EQ(RunProgram({}, kExitFailed).code, kExitFailed);
  EXPECT_EQ(RunProgram({}).code, kExitDone);
}

}  // namespace
}  // namespace shardshift
