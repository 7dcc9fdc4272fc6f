// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/reshard.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/part_receipt.h"
#include "ckpt/run_dir.h"
#include "ckpt/writer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/copy_files.h"
#include "reshard/exec/generic_plan.h"
#include "reshard/exec/part_links.h"
#include "reshard/exec/partial_run.h"
#include "reshard/exec/proof.h"

namespace shardshift::reshard {
namespace {

// What all processes know before anything is written.
struct Job {
  CheckpointState state;
  CopyPlan plan;
};

absl::StatusOr<Job> MakeJob(const ckpt::Reader& source, const Layout& layout,
                            const ReshardOptions& options) {
  Job job;
  if (options.generic) {
    SS_ASSIGN_OR_RETURN(job.state, ReadTexts(source));
    job.state.layout = StoredLayout(source);
    SS_ASSIGN_OR_RETURN(job.plan,
                        PlanGenericCopy(source, layout.data, options.choice));
    return job;
  }
  SS_ASSIGN_OR_RETURN(job.state, ReadState(source));
  SS_RETURN_IF_ERROR(Validate(job.state.model, layout));
  SS_ASSIGN_OR_RETURN(
      job.plan, PlanCopy(source, job.state.model, layout, options.choice));
  return job;
}

// The parts that a process writes: a run of them, all runs of about as many
// bytes.
std::vector<bool> SharesOf(const CopyPlan& plan, const Processes& processes) {
  const int64_t total = PayloadBytes(plan);
  int64_t before = 0;
  std::vector<bool> is_mine;
  for (const TargetPart& part : plan.parts) {
    const int64_t num_bytes = PayloadBytes(part);
    const double middle =
        static_cast<double>(before) + static_cast<double>(num_bytes) / 2;
    const auto owner =
        static_cast<int>(middle * processes.size() /
                         static_cast<double>(std::max(total, int64_t{1})));
    is_mine.push_back(std::min(owner, processes.size() - 1) ==
                      processes.rank());
    before += num_bytes;
  }
  return is_mine;
}

// What one process has written.
struct Share {
  std::vector<ckpt::PartReceipt> receipts;
  int64_t linked_parts = 0;
  NamedFingerprints named;
};

// Of a share what another process must know, but for the receipts, which are
// in the files.
std::string Pack(const Share& share) {
  nlohmann::json named = nlohmann::json::array();
  for (const auto& [copy, sum] : share.named) {
    named.push_back({copy.first, copy.second, sum.low, sum.high});
  }
  return nlohmann::json{{"linked", share.linked_parts}, {"named", named}}
      .dump();
}

void AddPacked(const std::string& packed, ReshardReport& report,
               NamedFingerprints& named) {
  const nlohmann::json share = nlohmann::json::parse(packed);
  report.linked_parts += share["linked"].get<int64_t>();
  for (const nlohmann::json& sum : share["named"]) {
    named[{sum[0].get<int64_t>(), sum[1].get<int64_t>()}] += ckpt::Fingerprint{
        .low = sum[2].get<uint64_t>(), .high = sum[3].get<uint64_t>()};
  }
}

class Resharder {
 public:
  Resharder(const ckpt::Reader& source, Job job, const Layout& layout,
            const ReshardOptions& options, Processes& processes)
      : source_(source),
        job_(std::move(job)),
        layout_(layout),
        options_(options),
        processes_(processes),
        id_{source.step(), source.state()},
        is_mine_(SharesOf(job_.plan, processes)) {}

  absl::StatusOr<ReshardReport> Run(const std::string& destination) {
    SS_ASSIGN_OR_RETURN(const std::vector<std::string> step_dirs,
                        AllGatherIfOk(processes_, Begin(destination)));
    absl::StatusOr<Share> share = WriteShare(step_dirs[0]);
    SS_ASSIGN_OR_RETURN(
        const std::vector<std::string> shares,
        AllGatherIfOk(processes_,
                      share.ok() ? absl::StatusOr<std::string>(Pack(*share))
                                 : share.status()));
    report_.step = source_.step();
    report_.from = job_.state.layout;
    report_.to = layout_;
    report_.tensors = std::ssize(job_.plan.tensors);
    report_.payload_bytes = PayloadBytes(job_.plan);
    report_.parts = std::ssize(job_.plan.parts);
    report_.converted = Converts(source_, job_.plan);
    report_.kept_weights = KeptWeights(source_, job_.plan);
    NamedFingerprints named;
    for (const std::string& packed : shares) {
      AddPacked(packed, report_, named);
    }
    SS_RETURN_IF_ERROR(
        Agree(processes_, Finish(step_dirs[0], *std::move(share), named)));
    return report_;
  }

 private:
  bool is_first() const { return processes_.rank() == 0; }

  // Gives the directory for the parts.
  absl::StatusOr<std::string> Begin(const std::string& destination) {
    if (!is_first()) return std::string();
    SS_ASSIGN_OR_RETURN(PartialRun run,
                        PartialRun::Create(source_, destination));
    run_.emplace(std::move(run));
    if (run_->replaced_leftover()) report_.replaced_leftover = run_->path();
    return ckpt::BeginCheckpoint(run_->path(), id_.step);
  }

  absl::StatusOr<Share> WriteShare(const std::string& step_dir) const {
    Share share;
    SS_ASSIGN_OR_RETURN(LinkedParts links,
                        LinkParts(source_, OnlyParts(job_.plan, is_mine_),
                                  options_.codec, step_dir));
    share.receipts = std::move(links.receipts);
    share.linked_parts = std::ssize(share.receipts);
    const int64_t total_bytes = PayloadBytes(links.rest);
    const auto progress = [this, total_bytes](int64_t done_bytes) {
      options_.progress(done_bytes, total_bytes);
    };
    SS_ASSIGN_OR_RETURN(CopiedFiles copied,
                        CopyFiles(source_, links.rest.parts, links.rest.tensors,
                                  PartsOfOurs(step_dir, id_, options_.codec),
                                  {.memory_bytes = options_.memory_bytes,
                                   .codec = options_.codec,
                                   .progress = progress}));
    std::move(copied.receipts.begin(), copied.receipts.end(),
              std::back_inserter(share.receipts));
    share.named = std::move(copied.fingerprints);
    return share;
  }

  // On the first process: commits what all have written, and publishes it if
  // it is proved.
  absl::Status Finish(const std::string& step_dir, Share share,
                      const NamedFingerprints& named) {
    if (!is_first()) return absl::OkStatus();
    SS_ASSIGN_OR_RETURN(const std::vector<ckpt::PartReceipt> receipts,
                        AllReceipts(step_dir, std::move(share.receipts)));
    job_.state.record["layout"] = ToJson(layout_);
    SS_RETURN_IF_ERROR(ckpt::CommitCheckpoint(run_->path(), id_, receipts,
                                              StateText(job_.state.record),
                                              /*replace_existing=*/false));
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> copy,
                        ckpt::Reader::Open(ckpt::JoinPath(
                            run_->path(), ckpt::StepName(id_.step))));
    const std::vector<ExpectedTensor> expected =
        ExpectedTensors(source_, job_.plan, named);
    report_.root_before = RootFingerprintOf(expected);
    report_.root_after = ckpt::RootFingerprintOf(copy->table());
    report_.proof = Compare(expected, copy->table());
    if (!report_.proof.ok()) return absl::OkStatus();
    if (options_.before_publish) {
      SS_RETURN_IF_ERROR(options_.before_publish(expected));
    }
    return run_->Publish();
  }

  // Ascending by part. Those of other processes are in the files.
  absl::StatusOr<std::vector<ckpt::PartReceipt>> AllReceipts(
      const std::string& step_dir, std::vector<ckpt::PartReceipt> mine) const {
    std::vector<ckpt::PartReceipt> receipts = std::move(mine);
    for (size_t p = 0; p < is_mine_.size(); ++p) {
      if (is_mine_[p]) continue;
      const int64_t number = job_.plan.parts[p].number;
      SS_ASSIGN_OR_RETURN(
          ckpt::PartReceipt receipt,
          ckpt::ReadReceipt(
              ckpt::JoinPath(step_dir, ckpt::PartFileName(number)), number));
      receipts.push_back(std::move(receipt));
    }
    std::sort(receipts.begin(), receipts.end(),
              [](const ckpt::PartReceipt& a, const ckpt::PartReceipt& b) {
                return a.part.number < b.part.number;
              });
    return receipts;
  }

  const ckpt::Reader& source_;
  Job job_;
  const Layout layout_;
  const ReshardOptions& options_;
  Processes& processes_;
  const ckpt::CheckpointId id_;
  const std::vector<bool> is_mine_;  // by part of the plan
  std::optional<PartialRun> run_;    // of the first process
  ReshardReport report_;
};

}  // namespace

absl::StatusOr<DryRunReport> DryRun(const ckpt::Reader& source,
                                    const Layout& layout,
                                    const ReshardOptions& options) {
  SS_ASSIGN_OR_RETURN(const Job job, MakeJob(source, layout, options));
  std::vector<bool> is_written;
  for (const auto& twin : FindTwins(source, job.plan, options.codec)) {
    is_written.push_back(!twin.has_value());
  }
  const CopyPlan plan = OnlyParts(job.plan, is_written);
  DryRunReport report = {
      .step = source.step(),
      .from = job.state.layout,
      .to = layout,
      .parts = std::ssize(plan.parts),
      .linked_parts = std::ssize(job.plan.parts) - std::ssize(plan.parts),
      .payload_bytes = PayloadBytes(plan)};
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
                                                const ReshardOptions& options,
                                                Processes& processes) {
  absl::StatusOr<Job> job = MakeJob(source, layout, options);
  SS_RETURN_IF_ERROR(Agree(processes, job.status()));
  return Resharder(source, *std::move(job), layout, options, processes)
      .Run(destination);
}

absl::StatusOr<ReshardReport> ReshardCheckpoint(const ckpt::Reader& source,
                                                const std::string& destination,
                                                const Layout& layout,
                                                const ReshardOptions& options) {
  OneProcess alone;
  return ReshardCheckpoint(source, destination, layout, options, alone);
}

}  // namespace shardshift::reshard
