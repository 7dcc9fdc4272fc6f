// SPDX-License-Identifier: Apache-2.0
#include "tools/reshard_report.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/layout/layout.h"

namespace shardshift {
namespace {

const char* Verdict(const reshard::ReshardReport& report) {
  if (!report.proof.ok()) return "DIFFERENT";
  return report.converted ? "every value is the source's, rounded"
                          : "every value is equal, bit for bit";
}

// What the source or the copy is: a layout, or a format that has none.
nlohmann::json JsonOf(reshard::Format format,
                      const std::optional<reshard::Layout>& layout) {
  if (format == reshard::Format::kNative) return reshard::ToJson(layout);
  return std::string(reshard::InfoOf(format).name);
}

std::string TextOf(reshard::Format format,
                   const std::optional<reshard::Layout>& layout) {
  if (format == reshard::Format::kNative) return reshard::ToString(layout);
  return std::string(reshard::InfoOf(format).name);
}

// By the reader of the source, then by the writer of the copy.
std::vector<std::string> LeftOut(const reshard::ReshardReport& report,
                                 const reshard::OpenedSource& source) {
  std::vector<std::string> left_out = source.left_out;
  left_out.insert(left_out.end(), report.left_out.begin(),
                  report.left_out.end());
  return left_out;
}

nlohmann::json JsonOf(const std::vector<reshard::LostFromTensor>& all) {
  nlohmann::json json = nlohmann::json::array();
  for (const reshard::LostFromTensor& lost : all) {
    nlohmann::json boxes = nlohmann::json::array();
    for (const ckpt::Box& box : lost.boxes) boxes.push_back(ToString(box));
    json.push_back({{"tensor", lost.tensor},
                    {"elements", lost.count},
                    {"of", lost.of},
                    {"boxes", std::move(boxes)},
                    {"more_boxes", lost.more_boxes}});
  }
  return json;
}

}  // namespace

std::string ReportText(const FinishedReshard& finished) {
  const auto& [report, source, to, destination, seconds] = finished;
  std::string text = absl::StrFormat(
      "step %d: %s -> %s\n%d tensors, %d bytes, %d %s in %s, %.2f s "
      "(%.0f MB/s)",
      report.step, TextOf(source.format, report.from), TextOf(to, report.to),
      report.tensors, report.payload_bytes, report.parts,
      to == reshard::Format::kNative ? "part files" : "files", destination,
      seconds, static_cast<double>(report.payload_bytes) / 1e6 / seconds);
  if (report.linked_parts > 0) {
    absl::StrAppend(&text, "; ", report.linked_parts,
                    " are files of the source, linked unread (`ckpt verify "
                    "--deep` reads them)");
  }
  absl::StrAppendFormat(&text, "\nfingerprint %s before, %s after: %s\n",
                        ToString(report.root_before),
                        ToString(report.root_after), Verdict(report));
  for (const std::string& what : LeftOut(report, source)) {
    absl::StrAppend(&text, "left out: ", what, "\n");
  }
  return text;
}

nlohmann::json ReportJson(const FinishedReshard& finished) {
  const auto& [report, source, to, destination, seconds] = finished;
  return {{"step", report.step},
          {"from", JsonOf(source.format, report.from)},
          {"to", JsonOf(to, report.to)},
          {"left_out", LeftOut(report, source)},
          {"lost", JsonOf(source.lost)},
          {"tensors", report.tensors},
          {"bytes", report.payload_bytes},
          {"parts", report.parts},
          {"linked_parts", report.linked_parts},
          {"seconds", seconds},
          {"root_fingerprint_before", ToString(report.root_before)},
          {"root_fingerprint_after", ToString(report.root_after)},
          {"equal", report.proof.ok()},
          {"converted", report.converted}};
}

}  // namespace shardshift
