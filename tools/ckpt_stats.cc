// `ckpt stats CKPT [NAME...]`: what the values of each tensor are like.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"
#include "tools/progress_bar.h"
#include "tools/tensor_stats.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

struct StatsFlags {
  std::string checkpoint;
  std::vector<std::string> names;
  bool check_finite = false;
  bool json = false;
};

struct TensorRow {
  const ckpt::Tensor* tensor;
  ValueStats stats;
};

// The tensors of those names, in every role; all if there are no names.
absl::StatusOr<std::vector<int64_t>> ChooseTensors(
    const ckpt::Reader& reader, const std::vector<std::string>& names) {
  const auto& tensors = reader.table().tensors;
  std::vector<bool> is_found(names.size());
  std::vector<int64_t> chosen;
  for (size_t t = 0; t < tensors.size(); ++t) {
    bool is_named = names.empty();
    for (size_t n = 0; n < names.size(); ++n) {
      if (names[n] != tensors[t].name) continue;
      is_named = is_found[n] = true;
    }
    if (is_named) chosen.push_back(static_cast<int64_t>(t));
  }
  const auto missing = std::find(is_found.begin(), is_found.end(), false);
  if (missing == is_found.end()) return chosen;
  return absl::NotFoundError(
      absl::StrCat(reader.directory(), " has no tensor \"",
                   names[static_cast<size_t>(missing - is_found.begin())],
                   "\"; see ckpt show"));
}

absl::StatusOr<std::vector<TensorRow>> ComputeRows(
    const ckpt::Reader& reader, const std::vector<int64_t>& chosen) {
  const auto& tensors = reader.table().tensors;
  int64_t total_bytes = 0;
  for (const int64_t t : chosen) {
    total_bytes +=
        ckpt::NumElements(tensors[t].shape) * ckpt::ItemSize(tensors[t].dtype);
  }
  ProgressBar bar;
  int64_t done_bytes = 0;
  const auto on_bytes = [&](int64_t num_bytes) {
    bar.Show(done_bytes += num_bytes, total_bytes);
  };
  std::vector<TensorRow> rows;
  for (const int64_t t : chosen) {
    SS_ASSIGN_OR_RETURN(ValueStats stats, StatsOfTensor(reader, t, on_bytes));
    rows.push_back({&tensors[t], std::move(stats)});
  }
  return rows;
}

Json ToJson(const TensorRow& row) {
  const ValueStats& stats = row.stats;
  const bool any = stats.num_finite > 0;
  Json json = shardshift::ToJson(*row.tensor);
  json["min"] = any ? Json(stats.min) : Json();
  json["max"] = any ? Json(stats.max) : Json();
  json["mean"] = any ? Json(stats.mean) : Json();
  json["rms"] = any ? Json(stats.rms) : Json();
  json["nan"] = stats.num_nan;
  json["inf"] = stats.num_infinite;
  json["zero"] = stats.num_zero;
  json["histogram"] = Json::array();
  for (const ValueStats::Bucket& bucket : stats.histogram) {
    json["histogram"].push_back(
        {{"log2", bucket.log2}, {"count", bucket.count}});
  }
  return json;
}

// Bars over |x|, in at most 16 steps that are equal in log2.
void PrintHistogram(const TensorRow& row) {
  constexpr int64_t kMaxBars = 16;
  constexpr double kMaxBarWidth = 40;
  std::cout << absl::StreamFormat("\n%s (%s), zeros: %d, others by magnitude\n",
                                  row.tensor->name, row.tensor->role,
                                  row.stats.num_zero);
  const std::vector<ValueStats::Bucket> buckets = row.stats.histogram;
  if (buckets.empty()) return;
  const int64_t low = buckets.front().log2;
  const int64_t width = (buckets.back().log2 - low) / kMaxBars + 1;
  std::vector<int64_t> counts((buckets.back().log2 - low) / width + 1);
  for (const ValueStats::Bucket& bucket : buckets) {
    counts[(bucket.log2 - low) / width] += bucket.count;
  }
  const auto most =
      static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  std::vector<std::vector<std::string>> lines;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t begin = low + static_cast<int64_t>(i) * width;
    // Rounded up: whatever is there at all shows.
    const auto bar = static_cast<size_t>(
        std::ceil(kMaxBarWidth * static_cast<double>(counts[i]) / most));
    lines.push_back({absl::StrCat("2^", begin), absl::StrCat(counts[i]),
                     std::string(bar, '#')});
  }
  std::cout << FormatTable(
      {{"from", Align::kRight}, {"count", Align::kRight}, {""}}, lines);
}

void PrintTable(const std::vector<TensorRow>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const TensorRow& row : rows) {
    const ValueStats& stats = row.stats;
    const auto figure = [&stats](double value) {
      return stats.num_finite == 0 ? std::string("-")
                                   : absl::StrFormat("%.4g", value);
    };
    lines.push_back({row.tensor->name, row.tensor->role, figure(stats.min),
                     figure(stats.max), figure(stats.mean), figure(stats.rms),
                     absl::StrCat(stats.num_nan),
                     absl::StrCat(stats.num_infinite)});
  }
  std::cout << FormatTable({{"name"},
                            {"role"},
                            {"min", Align::kRight},
                            {"max", Align::kRight},
                            {"mean", Align::kRight},
                            {"rms", Align::kRight},
                            {"NaN", Align::kRight},
                            {"Inf", Align::kRight}},
                           lines);
}

// OK, or which tensor is the first with a value that is not finite.
absl::Status CheckFinite(const std::vector<TensorRow>& rows) {
  for (const TensorRow& row : rows) {
    const int64_t num_bad = row.stats.num_nan + row.stats.num_infinite;
    if (num_bad == 0) continue;
    return absl::DataLossError(
        absl::StrCat(ckpt::Describe(*row.tensor), ": ", num_bad,
                     num_bad == 1 ? " value is" : " values are",
                     " not finite, expected none"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Stats(const StatsFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::shared_ptr<const ckpt::Reader> reader,
                      OpenCheckpoint(flags.checkpoint));
  SS_ASSIGN_OR_RETURN(const std::vector<int64_t> chosen,
                      ChooseTensors(*reader, flags.names));
  SS_ASSIGN_OR_RETURN(const std::vector<TensorRow> rows,
                      ComputeRows(*reader, chosen));
  if (flags.json) {
    Json list = Json::array();
    for (const TensorRow& row : rows) list.push_back(ToJson(row));
    std::cout << ToText(list) << "\n";
  } else {
    PrintTable(rows);
    if (!flags.names.empty()) {
      for (const TensorRow& row : rows) PrintHistogram(row);
    }
  }
  if (flags.check_finite) SS_RETURN_IF_ERROR(CheckFinite(rows));
  return kExitDone;
}

}  // namespace

void AddStats(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "stats",
      "Minimum, maximum, mean and root mean square of the finite values of "
      "each tensor, and how many are NaN or infinite. Of tensors that are "
      "named also a histogram of the magnitudes.");
  const auto flags = std::make_shared<StatsFlags>();
  command
      ->add_option("CKPT", flags->checkpoint,
                   "A step or run directory, or a checkpoint of another format")
      ->required();
  command->add_option("NAME", flags->names, "Tensors, in all their roles")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--check-finite", flags->check_finite,
                    "Exit with 1 if a value is NaN or infinite");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return Stats(*flags); }; });
}

}  // namespace shardshift
