// SPDX-License-Identifier: Apache-2.0
#include "tools/reshard_dry_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

constexpr int64_t kMaxTensors = 10;

double SecondsOf(const reshard::DryRunReport& report) {
  if (report.read_bytes_per_s == 0) return 0;
  // One disk reads and writes.
  return static_cast<double>(report.costs.read_bytes + report.payload_bytes) /
         report.read_bytes_per_s;
}

double AmplificationOf(const reshard::DryRunReport& report) {
  if (report.payload_bytes == 0) return 1;
  return static_cast<double>(report.costs.read_bytes) /
         static_cast<double>(report.payload_bytes);
}

// Of all tensors together.
reshard::TensorCost TotalOf(const reshard::DryRunReport& report) {
  reshard::TensorCost total;
  for (const reshard::TensorCost& cost : report.costs.tensors) {
    total.sources += cost.sources;
    total.targets += cost.targets;
    total.copies += cost.copies;
  }
  return total;
}

// Those that are cut into the most boxes first.
std::vector<reshard::TensorCost> Costliest(
    const reshard::DryRunReport& report) {
  std::vector<reshard::TensorCost> costs = report.costs.tensors;
  std::stable_sort(costs.begin(), costs.end(),
                   [](const auto& a, const auto& b) {
                     return std::pair(a.copies, a.payload_bytes) >
                            std::pair(b.copies, b.payload_bytes);
                   });
  costs.resize(std::min<size_t>(costs.size(), kMaxTensors));
  return costs;
}

}  // namespace

std::string DryRunText(const PlannedReshard& planned) {
  const auto& [report, source, to, more_bytes] = planned;
  const reshard::TensorCost total = TotalOf(report);
  const std::string files =
      to == reshard::Format::kNative
          ? absl::StrCat(report.parts, " part files, ", report.linked_parts,
                         " more are linked")
          : absl::StrCat(report.parts, " files");
  std::string text = absl::StrFormat(
      "step %d: %s -> %s\nto write  %s in %s\n"
      "to read   %s, %.3f times as much\nboxes     %d fragments now, %d then, "
      "%d boxes moved\nmemory    %s\n",
      report.step, ToString(source.format, report.from),
      ToString(to, report.to), HumanBytes(report.payload_bytes), files,
      HumanBytes(report.costs.read_bytes), AmplificationOf(report),
      total.sources, total.targets, total.copies,
      HumanBytes(report.costs.memory_bytes + more_bytes));
  if (report.read_bytes_per_s > 0) {
    absl::StrAppendFormat(
        &text,
        "time      %.1f s if the disk goes on at the %.0f MB/s it reads "
        "now\n",
        SecondsOf(report), report.read_bytes_per_s / 1e6);
  }
  std::vector<std::vector<std::string>> rows;
  for (const reshard::TensorCost& cost : Costliest(report)) {
    const ckpt::Tensor& tensor = source.reader->table().tensors[cost.source];
    rows.push_back({tensor.name, tensor.role, ckpt::ToString(tensor.shape),
                    HumanBytes(cost.payload_bytes), absl::StrCat(cost.sources),
                    absl::StrCat(cost.targets), absl::StrCat(cost.copies)});
  }
  return absl::StrCat(text, "\nwhat is cut most:\n",
                      FormatTable({{"tensor"},
                                   {"role"},
                                   {"shape"},
                                   {"size", Align::kRight},
                                   {"fragments now", Align::kRight},
                                   {"then", Align::kRight},
                                   {"boxes moved", Align::kRight}},
                                  rows));
}

nlohmann::json DryRunJson(const PlannedReshard& planned) {
  const auto& [report, source, to, more_bytes] = planned;
  nlohmann::json tensors = nlohmann::json::array();
  for (const reshard::TensorCost& cost : Costliest(report)) {
    const ckpt::Tensor& tensor = source.reader->table().tensors[cost.source];
    tensors.push_back({{"name", tensor.name},
                       {"role", tensor.role},
                       {"bytes", cost.payload_bytes},
                       {"bytes_read", cost.read_bytes},
                       {"sources", cost.sources},
                       {"targets", cost.targets},
                       {"copies", cost.copies}});
  }
  const reshard::TensorCost total = TotalOf(report);
  return {{"step", report.step},
          {"from", ToJson(source.format, report.from)},
          {"to", ToJson(to, report.to)},
          {"to_layout", reshard::ToJson(report.to)},
          {"bytes", report.payload_bytes},
          {"bytes_read", report.costs.read_bytes},
          {"amplification", AmplificationOf(report)},
          {"memory_bytes", report.costs.memory_bytes + more_bytes},
          {"parts", report.parts},
          {"linked_parts", report.linked_parts},
          {"sources", total.sources},
          {"targets", total.targets},
          {"copies", total.copies},
          {"seconds", SecondsOf(report)},
          {"tensors", tensors}};
}

}  // namespace shardshift
