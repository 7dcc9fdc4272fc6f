// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_log.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

IterationRecord Record(int64_t iteration) {
  return {.iteration = iteration,
          .consumed_samples = 8 * iteration,
          .loss = 2.5F,
          .grad_norm = 0.125F,
          .learning_rate = 0.0003,
          .elapsed_ms = 41.5,
          .tokens_per_s = 12430};
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ToJsonLine, IsTheDocumentedObject) {
  EXPECT_EQ(ToJsonLine(Record(12)),
            R"({"iteration":12,"consumed_samples":96,"lm_loss":2.5,)"
            R"("lm_loss_bits":"40200000","grad_norm":0.125,)"
            R"("grad_norm_bits":"3e000000","learning_rate":0.0003,)"
            R"("loss_scale":1.0,"skipped":0,"elapsed_ms":41.5,)"
            R"("tokens_per_s":12430.0})");
}

TEST(ToJsonLine, TellsTheLossScaleAndANormThatIsNoNumber) {
  IterationRecord record = Record(1);
  record.loss_scale = 65536;
  record.skipped = 3;
  record.grad_norm = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(ToJsonLine(record),
              AllOf(HasSubstr(R"("loss_scale":65536.0,"skipped":3,)"),
                    HasSubstr(R"("grad_norm":null,)"),
                    HasSubstr(R"("grad_norm_bits":"7fc00000",)")));
}

TEST(ToJsonLine, EndsWithTheMemoryOfRanksWhereItIsTold) {
  IterationRecord record = Record(1);
  record.memory = {{{"rank", 0}}};
  EXPECT_THAT(ToJsonLine(record), HasSubstr(R"(,"memory":[{"rank":0}]})"));
}

TEST(RunLog, AppendsEachIterationAtOnce) {
  const std::string path = ::testing::TempDir() + "run_log_test.jsonl";
  std::ofstream(path) << "before\n";
  std::vector<std::string> printed;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<RunLog> log,
      RunLog::Open(path, /*log_interval=*/2, /*train_iters=*/4,
                   [&](const std::string& line) { printed.push_back(line); }));
  EXPECT_OK(log->Add(Record(1)));
  EXPECT_EQ(ReadFile(path), "before\n" + ToJsonLine(Record(1)) + "\n");
  EXPECT_THAT(printed, ElementsAre());
  EXPECT_OK(log->Add(Record(2)));
  EXPECT_EQ(ReadFile(path), "before\n" + ToJsonLine(Record(1)) + "\n" +
                                ToJsonLine(Record(2)) + "\n");
  EXPECT_THAT(printed, ElementsAre(HasSubstr("2/       4")));
  EXPECT_THAT(printed[0], HasSubstr("lm loss: 2.500000E+00"));
  std::remove(path.c_str());
}

TEST(RunLog, RefusesAFileThatCannotBeOpened) {
  EXPECT_THAT(RunLog::Open("/nonexistent/log", 1, 1, [](const std::string&) {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("--log-jsonl")));
}

TEST(RunLog, FailsOnAFullDisk) {
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<RunLog> log,
      RunLog::Open("/dev/full", 1, 1, [](const std::string&) {}));
  EXPECT_THAT(log->Add(Record(1)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("--log-jsonl /dev/full")));
}

}  // namespace
}  // namespace shardshift::trainer
