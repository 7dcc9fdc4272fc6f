// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/export.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/copy_files.h"
#include "reshard/exec/copy_plan.h"
#include "reshard/exec/partial_run.h"
#include "reshard/exec/proof.h"

namespace shardshift::reshard {
namespace {

using TensorKey = std::pair<std::string, std::string>;  // name, role

// A file is a part; of a tensor the fragments follow each other.
absl::StatusOr<CopyPlan> PlanOf(const ExportPlan& plan) {
  std::map<TensorKey, TensorCopy> copies;
  std::map<int64_t, int64_t> num_copies;  // by source
  for (const ExportedTensor& tensor : plan.tensors) {
    TensorCopy& copy = copies[{tensor.name, tensor.role}];
    copy.source = tensor.source;
    copy.copy = num_copies[tensor.source]++;
  }
  CopyPlan result;
  for (int64_t f = 0; f < std::ssize(plan.files); ++f) {
    const std::vector<ckpt::FragmentSpec>& specs = plan.files[f].specs;
    if (specs.empty()) continue;
    const int64_t part = std::ssize(result.parts);
    result.parts.push_back({f, specs});
    for (int64_t s = 0; s < std::ssize(specs); ++s) {
      const auto copy = copies.find({specs[s].tensor, specs[s].role});
      if (copy == copies.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat(plan.files[f].name, " wants ", specs[s].tensor, " (",
                         specs[s].role, "), which the source does not have"));
      }
      copy->second.targets.push_back({part, s});
    }
  }
  for (const ExportedTensor& tensor : plan.tensors) {
    result.tensors.push_back(std::move(copies[{tensor.name, tensor.role}]));
  }
  return result;
}

// The directories of the plan's files, each after the one that it lies in.
std::set<std::string> DirectoriesOf(const ExportPlan& plan) {
  std::set<std::string> directories;
  const auto add = [&](const std::string& name) {
    for (size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      directories.insert(name.substr(0, slash));
    }
  };
  for (const ckpt::ForeignFile& file : plan.files) add(file.name);
  for (const TextFile& text : plan.texts) add(text.name);
  return directories;
}

// What was written, as one table.
absl::StatusOr<ckpt::Table> TableOf(std::vector<ckpt::PartReceipt> receipts) {
  ckpt::TableBuilder builder;
  for (ckpt::PartReceipt& receipt : receipts) {
    for (ckpt::Fragment& fragment : receipt.table.fragments) {
      const ckpt::Tensor& tensor = receipt.table.tensors[fragment.tensor];
      SS_RETURN_IF_ERROR(builder.Add(tensor, std::move(fragment)));
    }
  }
  return builder.Build().first;
}

}  // namespace

absl::StatusOr<ReshardReport> ExportCheckpoint(const ckpt::Reader& source,
                                               const std::string& destination,
                                               const ExportPlan& plan,
                                               const ReshardOptions& options) {
  SS_ASSIGN_OR_RETURN(const CopyPlan copies, PlanOf(plan));
  SS_ASSIGN_OR_RETURN(PartialRun run, PartialRun::Create(source, destination));
  const std::set<std::string> directories = DirectoriesOf(plan);
  for (const std::string& name : directories) {
    SS_RETURN_IF_ERROR(ckpt::MakeDirectories(ckpt::JoinPath(run.path(), name)));
  }
  const ckpt::CheckpointId id = {source.step(), "{}"};
  const int64_t total_bytes = PayloadBytes(copies);
  const auto progress = [&](int64_t done_bytes) {
    options.progress(done_bytes, total_bytes);
  };
  SS_ASSIGN_OR_RETURN(
      CopiedFiles copied,
      CopyFiles(source, copies.parts, copies.tensors,
                [&](const TargetPart& part) {
                  return ckpt::ForeignWriter::Create(
                      run.path(), plan.files[part.number], id);
                },
                {.memory_bytes = options.memory_bytes, .progress = progress}));
  for (const ckpt::ForeignFile& file : plan.files) {
    if (!file.specs.empty()) continue;
    SS_RETURN_IF_ERROR(ckpt::WriteFileWithoutTensors(run.path(), file));
  }
  for (const TextFile& text : plan.texts) {
    SS_RETURN_IF_ERROR(
        ckpt::ReplaceFile(ckpt::JoinPath(run.path(), text.name), text.text));
  }
  for (const std::string& name : directories) {
    SS_RETURN_IF_ERROR(ckpt::SyncDirectory(ckpt::JoinPath(run.path(), name)));
  }
  ReshardReport report;
  report.step = source.step();
  report.from = StoredLayout(source);
  report.to = plan.layout;
  report.tensors =
      std::count_if(copies.tensors.begin(), copies.tensors.end(),
                    [](const TensorCopy& copy) { return copy.copy == 0; });
  report.payload_bytes = total_bytes;
  report.parts = std::ssize(plan.files);
  report.converted = Converts(source, copies);
  report.kept_weights = KeptWeights(source, copies);
  report.left_out = plan.left_out;
  if (run.replaced_leftover()) report.replaced_leftover = run.path();
  SS_ASSIGN_OR_RETURN(const ckpt::Table written,
                      TableOf(std::move(copied.receipts)));
  SS_RETURN_IF_ERROR(ckpt::CheckCovers(written));
  const std::vector<ExpectedTensor> expected =
      ExpectedTensors(source, copies, copied.fingerprints);
  report.root_before = RootFingerprintOf(expected);
  report.root_after = ckpt::RootFingerprintOf(written);
  report.proof = Compare(expected, written);
  if (!report.proof.ok()) return report;
  if (options.before_publish) {
    SS_RETURN_IF_ERROR(options.before_publish(expected));
  }
  SS_RETURN_IF_ERROR(run.Publish());
  return report;
}

absl::StatusOr<DryRunReport> DryRunExport(const ckpt::Reader& source,
                                          const ExportPlan& plan,
                                          const ReshardOptions& options) {
  SS_ASSIGN_OR_RETURN(const CopyPlan copies, PlanOf(plan));
  DryRunReport report = {.step = source.step(),
                         .from = StoredLayout(source),
                         .to = plan.layout,
                         .parts = std::ssize(plan.files),
                         .payload_bytes = PayloadBytes(copies)};
  SS_ASSIGN_OR_RETURN(report.costs,
                      CostOfCopies(source, copies.parts, copies.tensors,
                                   {.memory_bytes = options.memory_bytes}));
  SS_ASSIGN_OR_RETURN(report.read_bytes_per_s, ProbeReads(source));
  return report;
}

}  // namespace shardshift::reshard
