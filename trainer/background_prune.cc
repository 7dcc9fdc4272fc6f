// SPDX-License-Identifier: Apache-2.0
#include "trainer/background_prune.h"

#include "absl/strings/str_cat.h"

namespace shardshift::trainer {

void BackgroundPrune::Begin(int64_t current_step) {
  Finish();
  ckpt::Retention retention = retention_;
  retention.current_step = current_step;
  pruning_ = std::async(std::launch::async,
                        [run_dir = run_dir_, retention = std::move(retention)] {
                          return ckpt::PruneRun(run_dir, retention);
                        });
}

void BackgroundPrune::Finish() {
  if (!pruning_.valid()) return;
  const absl::StatusOr<ckpt::PruneReport> report = pruning_.get();
  if (!report.ok()) {
    print_(absl::StrCat("old checkpoints stay for now: ",
                        std::string(report.status().message())));
    return;
  }
  for (const ckpt::StepEntry& step : report->deleted) {
    print_(absl::StrCat("deleted ", step.path));
  }
  for (const std::string& line : report->left) print_(line);
}

}  // namespace shardshift::trainer
