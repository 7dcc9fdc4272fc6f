// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_saves.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/checkpoint_state.h"
#include "trainer/data/data_identity.h"

namespace shardshift::trainer {

absl::StatusOr<std::unique_ptr<RunSaves>> RunSaves::Create(
    Mesh& mesh, const Checkpointing& checkpointing, const TrainOptions& options,
    std::function<void(const std::string&)> print) {
  auto saves = std::unique_ptr<RunSaves>(
      new RunSaves(mesh, checkpointing, options, std::move(print)));
  SS_RETURN_IF_ERROR(saves->Prepare());
  return saves;
}

RunSaves::RunSaves(Mesh& mesh, const Checkpointing& checkpointing,
                   const TrainOptions& options,
                   std::function<void(const std::string&)> print)
    : mesh_(mesh),
      checkpointing_(checkpointing),
      options_(options),
      print_(std::move(print)),
      last_step_(options.start.step) {}

absl::Status RunSaves::Prepare() {
  if (!options_.save_run_dir.has_value()) return absl::OkStatus();
  if (options_.retention.has_value() && mesh_.world().rank() == 0) {
    prune_.emplace(*options_.save_run_dir, *options_.retention, print_);
  }
  if (!options_.async_save) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<AsyncSave>> async_save =
      AsyncSave::Create(checkpointing_);
  SS_RETURN_IF_ERROR(AgreeOnStatus(mesh_.world(), async_save.status()));
  async_save_ = *std::move(async_save);
  int64_t bytes = async_save_->memory_bytes();
  SS_RETURN_IF_ERROR(mesh_.world().AllReduceSum(std::span(&bytes, 1)));
  print_(absl::StrCat("asynchronous saves: ", bytes,
                      " bytes of memory for the copies of all ranks"));
  return absl::OkStatus();
}

absl::Status RunSaves::AfterIteration(const RunProgress& progress) {
  SS_RETURN_IF_ERROR(LookAfterSave());
  const bool is_due = options_.save_run_dir.has_value() &&
                      options_.save_interval > 0 &&
                      progress.step % options_.save_interval == 0;
  return is_due ? Save(progress) : absl::OkStatus();
}

absl::Status RunSaves::Finish(const RunProgress& progress) {
  if (options_.save_run_dir.has_value() && progress.step != last_step_) {
    SS_RETURN_IF_ERROR(Save(progress));
  }
  SS_RETURN_IF_ERROR(WaitForSave());
  if (prune_.has_value()) prune_->Finish();
  return absl::OkStatus();
}

SaveRequest RunSaves::RequestOf(const RunProgress& progress) const {
  const StoredRun run{.config = options_.config,
                      .progress = progress,
                      .data = DataIdentity(*options_.data, options_.data_order,
                                           options_.config.seed)};
  return {
      .run_dir = *options_.save_run_dir,
      .id = {progress.step, reshard::StateText(ToState(run))},
      .record = reshard::StateText(ToRecord(
          options_.layout, options_.micro_batch_size, options_.activations)),
      .replace_existing = options_.replace_steps};
}

absl::Status RunSaves::Save(const RunProgress& progress) {
  last_step_ = progress.step;
  if (async_save_ != nullptr) {
    SS_RETURN_IF_ERROR(WaitForSave());
    async_save_->Begin(RequestOf(progress));
    return absl::OkStatus();
  }
  const absl::Time begin = absl::Now();
  SS_RETURN_IF_ERROR(
      checkpointing_.Save(RequestOf(progress), checkpointing_.images()));
  Report(progress.step, absl::Now() - begin, "");
  return absl::OkStatus();
}

bool RunSaves::is_saving() const {
  return async_save_ != nullptr && async_save_->in_flight();
}

absl::Status RunSaves::LookAfterSave() {
  if (!is_saving()) return absl::OkStatus();
  SS_ASSIGN_OR_RETURN(const bool has_ended,
                      async_save_->HasEnded(mesh_.world()));
  return has_ended ? WaitForSave() : absl::OkStatus();
}

absl::Status RunSaves::WaitForSave() {
  if (!is_saving()) return absl::OkStatus();
  const absl::Time begin = absl::Now();
  SS_ASSIGN_OR_RETURN(const AsyncSave::Report report, async_save_->Finish());
  const absl::Duration waited = absl::Now() - begin;
  std::string stalls = absl::StrFormat("; training waited %.3f s for the copy",
                                       absl::ToDoubleSeconds(report.stall));
  if (waited >= absl::Milliseconds(1)) {
    absl::StrAppendFormat(&stalls, " and %.3f s for the end",
                          absl::ToDoubleSeconds(waited));
  }
  Report(report.step, report.elapsed, stalls);
  return absl::OkStatus();
}

void RunSaves::Report(int64_t step, absl::Duration elapsed,
                      const std::string& stalls) {
  print_(absl::StrFormat("saved %s/%s in %.2f s%s", *options_.save_run_dir,
                         ckpt::StepName(step), absl::ToDoubleSeconds(elapsed),
                         stalls));
  if (prune_.has_value()) prune_->Begin(step);
}

}  // namespace shardshift::trainer
