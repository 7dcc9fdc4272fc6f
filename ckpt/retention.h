// Which checkpoints of a run to keep, and deleting the others.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_RETENTION_H_
#define SHARDSHIFT_CKPT_RETENTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/run_dir.h"

namespace shardshift::ckpt {

struct Retention {
  // The newest so many steps that open whole; at least 1.
  int64_t keep_last = 1;
  // Besides every step that this divides; 0: none.
  int64_t keep_every = 0;
  // Besides these, such as the one that a run was resumed from.
  std::vector<int64_t> protected_steps = {};
  // The step the caller's run has reached. Higher ones are of another run, in
  // whose directory this one goes on: they are no newer, and are left alone.
  std::optional<int64_t> current_step = std::nullopt;
};

struct PruneReport {
  std::vector<StepEntry> deleted;  // ascending
  // A line for the user for each thing that was to go and was left, and why.
  std::vector<std::string> left;
};

// Deletes the steps of a run that `retention` does not keep, by number, not by
// age or text. Left are also: what RUN/latest names, a step that is being
// read, a directory that holds other files than ours, and, if fewer than
// keep_last steps open whole, everything. A step leaves its name, durably,
// before the first of its files goes; what a killed deletion left is removed
// by the next. Runs beside saves into the same run.
// `dry_run` only tells what would be done.
// Errors: InvalidArgument for a bad `retention`; NotFound without `run_dir`;
// as RemoveTree.
absl::StatusOr<PruneReport> PruneRun(const std::string& run_dir,
                                     const Retention& retention,
                                     bool dry_run = false);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_RETENTION_H_
