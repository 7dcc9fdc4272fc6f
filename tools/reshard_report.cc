// SPDX-License-Identifier: Apache-2.0
#include "tools/reshard_report.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "reshard/formats/weights_check.h"

namespace shardshift {
namespace {

const char* Verdict(const reshard::ReshardReport& report) {
  if (!report.proof.ok()) return "DIFFERENT";
  return report.converted ? "every value is the source's, rounded"
                          : "every value is equal, bit for bit";
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

// More things of one kind than this share a line.
constexpr int64_t kMaxLinesOfAKind = 4;
constexpr int64_t kMaxNamedOfAKind = 3;

// "file", of "file tokenizer.json".
std::string KindOf(const std::string& what) {
  return what.substr(0, what.find(' '));
}

// A line each, or one for a kind of which there are many.
std::string LeftOutText(const std::vector<std::string>& all) {
  std::map<std::string, int64_t> counts;
  for (const std::string& what : all) ++counts[KindOf(what)];
  std::string text;
  std::map<std::string, int64_t> named;
  for (const std::string& what : all) {
    const std::string kind = KindOf(what);
    const int64_t count = counts[kind];
    const int64_t number = ++named[kind];
    if (count <= kMaxLinesOfAKind) {
      absl::StrAppend(&text, "left out: ", what, "\n");
    } else if (number == 1) {
      // The others of the kind follow, wherever they stand in the list.
      std::vector<std::string> first;
      for (const std::string& other : all) {
        if (KindOf(other) != kind || std::ssize(first) == kMaxNamedOfAKind) {
          continue;
        }
        first.push_back(other.substr(std::min(kind.size() + 1, other.size())));
      }
      absl::StrAppend(
          &text, "left out: ", kind, " ", absl::StrJoin(first, ", "), " and ",
          count - kMaxNamedOfAKind, " more, all of which --json names\n");
    }
  }
  return text;
}

}  // namespace

std::string ReportText(const FinishedReshard& finished) {
  const auto& [report, source, to, destination, seconds] = finished;
  std::string text = absl::StrFormat(
      "step %d: %s -> %s\n%d tensors, %d bytes, %d %s in %s, %.2f s "
      "(%.0f MB/s)",
      report.step, ToString(source.format, report.from),
      ToString(to, report.to), report.tensors, report.payload_bytes,
      report.parts, to == reshard::Format::kNative ? "part files" : "files",
      destination, seconds,
      static_cast<double>(report.payload_bytes) / 1e6 / seconds);
  if (report.linked_parts > 0) {
    absl::StrAppend(&text, "; ", report.linked_parts,
                    " are files of the source, linked unread (`ckpt verify "
                    "--deep` reads them)");
  }
  absl::StrAppendFormat(&text, "\nfingerprint %s before, %s after: %s\n",
                        ToString(report.root_before),
                        ToString(report.root_after), Verdict(report));
  if (!report.kept_weights.empty()) {
    absl::StrAppend(&text, "kept: ", reshard::DescribeKept(report.kept_weights),
                    "\n");
  }
  return absl::StrCat(text, LeftOutText(LeftOut(report, source)));
}

nlohmann::json ReportJson(const FinishedReshard& finished) {
  const auto& [report, source, to, destination, seconds] = finished;
  return {{"step", report.step},
          {"from", ToJson(source.format, report.from)},
          {"to", ToJson(to, report.to)},
          {"to_layout", reshard::ToJson(report.to)},
          {"left_out", LeftOut(report, source)},
          {"kept_weights", report.kept_weights},
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
