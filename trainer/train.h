// A training run: the loop over iterations on every rank, its log and saves.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_TRAIN_H_
#define SHARDSHIFT_TRAINER_TRAIN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "ckpt/retention.h"
#include "kernels/isa.h"
#include "reshard/layout/layout.h"
#include "trainer/activation_options.h"
#include "trainer/comm/communicator.h"
#include "trainer/data/sample_order.h"
#include "trainer/data/token_source.h"
#include "trainer/run_config.h"
#include "trainer/run_state.h"

namespace shardshift::trainer {

struct TrainOptions {
  RunConfig config = {};
  RunProgress start = {};  // zeros for a new run
  reshard::Layout layout = {};
  int64_t micro_batch_size = 1;
  ActivationOptions activations = {};
  int64_t train_iters = 0;
  kernels::Isa isa = kernels::Isa::kScalar;
  int64_t threads_per_rank = 1;  // that compute; the bits do not show it

  // Shared by all rank threads.
  std::shared_ptr<const TokenSource> data = nullptr;
  DataOrder data_order = DataOrder::kShuffled;

  // The checkpoint to start from; null: initial weights.
  std::shared_ptr<const ckpt::Reader> checkpoint = nullptr;
  // Take nothing but its weights, and start anew from them.
  bool finetune = false;

  std::optional<std::string> save_run_dir = std::nullopt;
  // Iterations between saves; 0: only after the last.
  int64_t save_interval = 0;
  // Whether a step that is there already may be replaced: only where the run
  // goes on from an earlier step of the same directory.
  bool replace_steps = false;
  // Whether training goes on while a copy of its state is written.
  bool async_save = false;
  // What to keep of save_run_dir after each save; nullopt: all.
  std::optional<ckpt::Retention> retention = std::nullopt;

  int64_t log_interval = 1;
  // After every so many iterations the ranks compare weights; 0: never.
  int64_t replica_check_interval = 0;
  std::optional<std::string> log_jsonl = std::nullopt;
  // Gets whole lines for a person, on rank 0.
  std::function<void(const std::string&)> print = {};
  // If set, tells the signal that asks this process to stop, 0 for none. Ranks
  // may differ; a signal that has been told of stays.
  std::function<int()> stop_signal = {};
  // If set, gets on rank 0 before the first iteration the table of the pipeline
  // schedule, and after the last how long stages waited for each other.
  std::function<void(const std::string&)> report_schedule = {};
};

// The part of one rank. Collective over `world`. Gives 0, or the signal that
// made the run stop before its last iteration: looked for on all ranks between
// iterations, and what it had computed is saved as at the end.
// REQUIRES: Validate(config, layout, micro_batch_size) is OK and world has the
// layout's size.
// Errors: those of data, load and save, on all ranks; of an asynchronous save
// at the latest in the iteration after the one in which it failed.
absl::StatusOr<int> Train(Communicator& world, const TrainOptions& options);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_TRAIN_H_
