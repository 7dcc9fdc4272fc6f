// The saves of a run: when, of what, in the background or not, and which older
// ones go.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_RUN_SAVES_H_
#define SHARDSHIFT_TRAINER_RUN_SAVES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/async_save.h"
#include "trainer/background_prune.h"
#include "trainer/checkpointing.h"
#include "trainer/mesh.h"
#include "trainer/run_state.h"
#include "trainer/train.h"

namespace shardshift::trainer {

// The part of one rank, which calls it in step with all others. Does nothing in
// a run that is not saved.
class RunSaves {
 public:
  // `mesh`, `checkpointing` and `options` outlive this. `print` gets lines for
  // a person. Collective.
  static absl::StatusOr<std::unique_ptr<RunSaves>> Create(
      Mesh& mesh, const Checkpointing& checkpointing,
      const TrainOptions& options,
      std::function<void(const std::string&)> print);

  // After an iteration: looks after a save in the background, which ends if it
  // has ended by itself or failed, and saves if it is time to.
  absl::Status AfterIteration(const RunProgress& progress);

  // After the last one, or one after which the run has to stop: what has been
  // computed is saved, and written to the end.
  absl::Status Finish(const RunProgress& progress);

 private:
  RunSaves(Mesh& mesh, const Checkpointing& checkpointing,
           const TrainOptions& options,
           std::function<void(const std::string&)> print);

  absl::Status Prepare();
  SaveRequest RequestOf(const RunProgress& progress) const;
  absl::Status Save(const RunProgress& progress);
  bool is_saving() const;
  absl::Status LookAfterSave();
  absl::Status WaitForSave();
  void Report(int64_t step, absl::Duration elapsed, const std::string& stalls);

  Mesh& mesh_;
  const Checkpointing& checkpointing_;
  const TrainOptions& options_;
  const std::function<void(const std::string&)> print_;
  int64_t last_step_;  // that a checkpoint has been, or is being, made of
  std::unique_ptr<AsyncSave> async_save_;  // null: saves are synchronous
  std::optional<BackgroundPrune> prune_;   // on rank 0
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_RUN_SAVES_H_
