// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/reshard.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "ckpt/writer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/copy_files.h"
#include "reshard/exec/copy_plan.h"

namespace shardshift::reshard {
namespace {

// A file in DST.partial that says who made it, so that a leftover may be
// replaced.
constexpr char kMark[] = "shardshift-reshard";

// A leftover is ours if it bears our mark, half-written perhaps.
absl::StatusOr<bool> IsOurs(const std::string& partial) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ckpt::ListDirectory(partial));
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return absl::StartsWith(name, kMark);
  });
}

// Refuses a destination that exists, or lies where it would go away with the
// source.
absl::Status CheckDestination(const ckpt::Reader& source,
                              const std::string& destination) {
  SS_ASSIGN_OR_RETURN(const bool taken, ckpt::Exists(destination));
  if (taken) {
    return absl::AlreadyExistsError(
        absl::StrCat(destination,
                     " exists; reshard writes only what is not there yet: "
                     "remove it or name another"));
  }
  const std::string name = destination.substr(destination.rfind('/') + 1);
  if (ckpt::ParseStepName(name).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        destination, " has the name of a checkpoint; name a run directory"));
  }
  if (ckpt::LiesWithin(destination, source.directory())) {
    return absl::InvalidArgumentError(
        absl::StrCat(destination, " lies inside the checkpoint ",
                     source.directory(), "; name a place outside"));
  }
  return absl::OkStatus();
}

// Whoever writes into it has it locked.
absl::StatusOr<ckpt::File> LockPartial(const std::string& partial) {
  absl::StatusOr<ckpt::File> lock =
      ckpt::LockDirectory(partial, ckpt::Lock::kExclusive);
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  return absl::FailedPreconditionError(
      absl::StrCat("another reshard writes ", partial,
                   "; wait for its end, or name another destination"));
}

struct Partial {
  ckpt::File lock;
  std::string replaced;  // the path, if there was a leftover of ours
};

// Removes a leftover of ours and makes the directory anew, locked and marked.
absl::StatusOr<Partial> PreparePartial(const std::string& partial) {
  std::string replaced;
  SS_ASSIGN_OR_RETURN(const bool leftover, ckpt::Exists(partial));
  if (leftover) {
    const absl::StatusOr<bool> ours = IsOurs(partial);
    if (!ours.ok() || !*ours) {
      return absl::AlreadyExistsError(
          absl::StrCat(partial,
                       " exists and was not left by an earlier reshard; move "
                       "it out of the way"));
    }
    SS_ASSIGN_OR_RETURN(const ckpt::File old_lock, LockPartial(partial));
    SS_RETURN_IF_ERROR(ckpt::RemoveTree(partial));
    replaced = partial;
  }
  SS_RETURN_IF_ERROR(ckpt::MakeDirectories(partial));
  SS_ASSIGN_OR_RETURN(ckpt::File lock, LockPartial(partial));
  SS_RETURN_IF_ERROR(
      ckpt::ReplaceFile(ckpt::JoinPath(partial, kMark), "unfinished\n"));
  return Partial{std::move(lock), std::move(replaced)};
}

// Whether both hold the same tensors with the same values: OK, or DataLoss
// naming the first that differs.
absl::Status CompareFingerprints(const ckpt::Table& a, const ckpt::Table& b) {
  const std::vector<ckpt::Fingerprint> of_a = ckpt::TensorFingerprints(a);
  const std::vector<ckpt::Fingerprint> of_b = ckpt::TensorFingerprints(b);
  for (size_t t = 0; t < std::min(of_a.size(), of_b.size()); ++t) {
    if (a.tensors[t] == b.tensors[t] && of_a[t] == of_b[t]) continue;
    return absl::DataLossError(absl::StrCat(
        Describe(a.tensors[t]), " with fingerprint ", ToString(of_a[t]),
        " became ", Describe(b.tensors[t]), " with ", ToString(of_b[t])));
  }
  if (of_a.size() == of_b.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(of_a.size(), " tensors became ", of_b.size()));
}

class Resharder {
 public:
  Resharder(const ckpt::Reader& source, CheckpointState state,
            const Layout& layout, const ReshardOptions& options)
      : source_(source),
        state_(std::move(state)),
        layout_(layout),
        options_(options) {}

  absl::StatusOr<ReshardReport> Run(const std::string& run_dir) {
    SS_ASSIGN_OR_RETURN(const CopyPlan plan,
                        PlanCopy(source_, state_.model, layout_));
    report_.payload_bytes = PayloadBytes(source_);
    report_.step = source_.step();
    report_.from = state_.layout;
    report_.to = layout_;
    report_.tensors = static_cast<int64_t>(source_.table().tensors.size());
    SS_RETURN_IF_ERROR(WriteStep(run_dir, plan));
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> copy,
                        ckpt::Reader::Open(ckpt::JoinPath(
                            run_dir, ckpt::StepName(source_.step()))));
    report_.root_before = ckpt::RootFingerprintOf(source_.table());
    report_.root_after = ckpt::RootFingerprintOf(copy->table());
    report_.proof = CompareFingerprints(source_.table(), copy->table());
    return report_;
  }

 private:
  absl::Status WriteStep(const std::string& run_dir, const CopyPlan& plan) {
    SS_ASSIGN_OR_RETURN(const std::string step_dir,
                        ckpt::BeginCheckpoint(run_dir, source_.step()));
    const ckpt::CheckpointId id = {source_.step(), source_.state()};
    const auto progress = [this](int64_t done_bytes) {
      options_.progress(done_bytes, report_.payload_bytes);
    };
    SS_ASSIGN_OR_RETURN(
        const CopiedFiles copied,
        CopyFiles(source_, plan.parts, plan.tensors, step_dir, id,
                  {.memory_bytes = options_.memory_bytes,
                   .codec = options_.codec,
                   .progress = progress}));
    const std::vector<ckpt::PartReceipt>& receipts = copied.receipts;
    report_.parts = static_cast<int64_t>(receipts.size());
    state_.record["layout"] = ToJson(layout_);
    return ckpt::CommitCheckpoint(run_dir, id, receipts,
                                  StateText(state_.record),
                                  /*replace_existing=*/false);
  }

  const ckpt::Reader& source_;
  CheckpointState state_;
  const Layout layout_;
  const ReshardOptions& options_;
  ReshardReport report_;
};

std::string ParentDirectory(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::StatusOr<DryRunReport> DryRun(const ckpt::Reader& source,
                                    const Layout& layout,
                                    const ReshardOptions& options) {
  SS_ASSIGN_OR_RETURN(const CheckpointState state, ReadState(source));
  SS_RETURN_IF_ERROR(Validate(state.model, layout));
  SS_ASSIGN_OR_RETURN(const CopyPlan plan,
                      PlanCopy(source, state.model, layout));
  DryRunReport report = {.step = source.step(),
                         .from = state.layout,
                         .to = layout,
                         .parts = std::ssize(plan.parts),
                         .payload_bytes = PayloadBytes(source)};
  SS_ASSIGN_OR_RETURN(report.costs,
                      CostOfCopies(source, plan.parts, plan.tensors,
                                   {.memory_bytes = options.memory_bytes,
                                    .codec = options.codec}));
  SS_ASSIGN_OR_RETURN(report.read_bytes_per_s, ProbeReads(source));
  return report;
}

absl::StatusOr<ReshardReport> ReshardCheckpoint(const ckpt::Reader& source,
                                                const std::string& destination,
                                                const Layout& layout,
                                                const ReshardOptions& options) {
  SS_ASSIGN_OR_RETURN(CheckpointState state, ReadState(source));
  SS_RETURN_IF_ERROR(Validate(state.model, layout));
  const std::string target =
      destination.substr(0, destination.find_last_not_of('/') + 1);
  if (target.empty()) {
    return absl::AlreadyExistsError("the destination is the root directory");
  }
  const std::string partial = absl::StrCat(target, ".partial");
  SS_RETURN_IF_ERROR(CheckDestination(source, target));
  SS_ASSIGN_OR_RETURN(Partial prepared, PreparePartial(partial));
  absl::Cleanup remove_partial = [&partial] {
    ckpt::RemoveTree(partial).IgnoreError();
  };

  Resharder resharder(source, std::move(state), layout, options);
  SS_ASSIGN_OR_RETURN(ReshardReport report, resharder.Run(partial));
  report.replaced_leftover = std::move(prepared.replaced);
  if (!report.proof.ok()) return report;
  SS_RETURN_IF_ERROR(ckpt::RemoveTree(ckpt::JoinPath(partial, kMark)));
  SS_RETURN_IF_ERROR(ckpt::SyncDirectory(partial));
  SS_RETURN_IF_ERROR(ckpt::RenameNoReplace(partial, target));
  std::move(remove_partial).Cancel();
  SS_RETURN_IF_ERROR(ckpt::SyncDirectory(ParentDirectory(target)));
  return report;
}

}  // namespace shardshift::reshard
