// Deleting old checkpoints of a run beside its training.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_BACKGROUND_PRUNE_H_
#define SHARDSHIFT_TRAINER_BACKGROUND_PRUNE_H_

#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <utility>

#include "ckpt/retention.h"

namespace shardshift::trainer {

// A deletion takes long on some disks, so a thread of its own does it. `print`
// gets a line for each step that was deleted. That one fails does not end the
// run: it says so, and the next tries again.
class BackgroundPrune {
 public:
  // `print` is called from the thread that calls Begin or Finish.
  BackgroundPrune(std::string run_dir, ckpt::Retention retention,
                  std::function<void(const std::string&)> print)
      : run_dir_(std::move(run_dir)),
        retention_(std::move(retention)),
        print_(std::move(print)) {}

  // Begins to delete what is not to be kept now that step `current_step` is
  // there. Waits for the deletion before.
  void Begin(int64_t current_step);

  // Waits for the deletion under way.
  void Finish();

 private:
  std::string run_dir_;
  ckpt::Retention retention_;
  std::function<void(const std::string&)> print_;
  std::future<absl::StatusOr<ckpt::PruneReport>> pruning_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_BACKGROUND_PRUNE_H_
