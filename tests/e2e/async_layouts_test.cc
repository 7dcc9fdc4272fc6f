// Asynchronous saves of every layout.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "tests/e2e/saved_runs.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

TEST(AsyncLayouts, WriteTheBytesOfSynchronousSaves) {
  int64_t turn = 0;
  for (const reshard::Layout& layout : TinyLayouts()) {
    const ScratchDir scratch;
    TrainOptions run =
        MockRun(turn++ % 2 == 0 ? TinyGpt() : TinyLlama(), layout, 1);
    run.save_run_dir = scratch.Path("sync");
    ASSERT_OK_AND_ASSIGN(const auto expected, TrainAndLog(run));
    run.save_run_dir = scratch.Path("async");
    run.async_save = true;
    ASSERT_OK_AND_ASSIGN(const auto log, TrainAndLog(run));
    EXPECT_EQ(log, expected) << NameOf(layout);
    EXPECT_EQ(FirstDifference(FilesBelow(scratch.Path("async")),
                              FilesBelow(scratch.Path("sync"))),
              "")
        << NameOf(layout);
  }
}

}  // namespace
}  // namespace shardshift::trainer
