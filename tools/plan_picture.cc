// SPDX-License-Identifier: Apache-2.0
#include "tools/plan_picture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/copy_plan.h"
#include "reshard/exec/part_moves.h"
#include "tools/rank_words.h"

namespace shardshift {
namespace {

using reshard::Layout;

constexpr int64_t kMaxGroups = 32;

// In pixels.
constexpr double kLegend = 56;
constexpr double kLegendWidth = 380;
constexpr double kMinLabels = 100;
constexpr double kAxisName = 24;
constexpr double kTotals = 130;
constexpr double kTotalBar = 60;
constexpr double kLabelLetter = 6.2;
constexpr double kMinCell = 20;
constexpr double kMaxCell = 60;
constexpr double kGrid = 640;
// A cell as wide as this has room for its bytes.
constexpr double kTextCell = 50;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How many parts a group has, from the first of a stage or of several on.
struct Grouping {
  int64_t stage_ranks = 0;  // parts after which groups begin anew
  int64_t group_ranks = 0;
};

Grouping GroupingOf(const Layout& layout) {
  const int64_t ranks = layout.tensor * layout.data;
  if (layout.world_size() <= kMaxGroups) return {ranks, 1};
  if (layout.pipeline > kMaxGroups) {
    const int64_t all = CeilDiv(layout.pipeline, kMaxGroups) * ranks;
    return {all, all};
  }
  return {ranks, CeilDiv(ranks, kMaxGroups / layout.pipeline)};
}

// "stages 0-1: parts 0-15" of parts [first, end).
std::string LabelOf(const Layout& layout, int64_t first, int64_t end) {
  std::string parts =
      absl::StrCat(end - first == 1 ? "part " : "parts ", SpanText(first, end));
  if (layout.pipeline == 1) return parts;
  const int64_t ranks = layout.tensor * layout.data;
  const int64_t first_stage = first / ranks;
  const int64_t stages_end = (end - 1) / ranks + 1;
  return absl::StrCat(stages_end - first_stage == 1 ? "stage " : "stages ",
                      SpanText(first_stage, stages_end), ": ", parts);
}

// Bytes from group to group.
struct Traffic {
  Traffic(PartGroups from_groups, PartGroups to_groups)
      : from(std::move(from_groups)),
        to(std::move(to_groups)),
        bytes(from.size() * to.size()),
        sent(from.size()),
        received(to.size()) {}

  void Add(const reshard::PartMove& move) {
    const int64_t row = from.GroupOf(move.source_part);
    const int64_t column = to.GroupOf(move.target_part);
    bytes[row * to.size() + column] += move.bytes;
    sent[row] += move.bytes;
    received[column] += move.bytes;
    total += move.bytes;
  }
  int64_t At(int64_t row, int64_t column) const {
    return bytes[row * to.size() + column];
  }

  PartGroups from;
  PartGroups to;
  std::vector<int64_t> bytes;
  std::vector<int64_t> sent;      // by group of the source
  std::vector<int64_t> received;  // by group of the target
  int64_t total = 0;
};

int64_t Most(const std::vector<int64_t>& values) {
  return std::max<int64_t>(1, *std::max_element(values.begin(), values.end()));
}

double Share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

class Painter {
 public:
  explicit Painter(const Traffic& traffic)
      : traffic_(traffic),
        most_(Most(traffic.bytes)),
        cell_(std::clamp(
            std::floor(kGrid / static_cast<double>(std::max(
                                   traffic.from.size(), traffic.to.size()))),
            kMinCell, kMaxCell)),
        left_(std::max(kMinLabels, LongestLabel(traffic.from))),
        top_(kLegend + kAxisName + LongestLabel(traffic.to)) {}

  void Paint(Picture& picture) {
    PaintLegend();
    PaintAxes();
    for (int64_t row = 0; row < traffic_.from.size(); ++row) {
      for (int64_t column = 0; column < traffic_.to.size(); ++column) {
        PaintCell(row, column);
      }
    }
    PaintTotals();
    picture.width = std::max(kLegendWidth, X(traffic_.to.size()) + kTotals);
    picture.height = Y(traffic_.from.size()) + kTotals;
    picture.drawing = std::move(drawing_);
  }

 private:
  static double LongestLabel(const PartGroups& groups) {
    size_t letters = 0;
    for (int64_t i = 0; i < groups.size(); ++i) {
      letters = std::max(letters, groups.Label(i).size());
    }
    return kLabelLetter * static_cast<double>(letters) + 8;
  }

  double X(int64_t column) const {
    return left_ + cell_ * static_cast<double>(column);
  }
  double Y(int64_t row) const {
    return top_ + cell_ * static_cast<double>(row);
  }
  // The base line of text in the middle of a row.
  double Middle(int64_t row) const { return Y(row) + cell_ / 2 + 4; }

  static double Opacity(double share) { return 0.08 + 0.82 * share; }

  void PaintLegend() {
    drawing_.Text(0, 10, "bytes from a row's parts to a column's", "muted");
    constexpr int kSteps = 4;
    double x = 0;
    for (int step = 1; step <= kSteps; ++step) {
      const double share = static_cast<double>(step) / kSteps;
      drawing_.Rect({.x = x, .y = 20, .width = 24, .height = 12}, "first",
                    Opacity(share));
      drawing_.Text(
          x + 30, 30,
          HumanBytes(static_cast<int64_t>(static_cast<double>(most_) * share)),
          "small");
      x += 90;
    }
  }

  void PaintAxes() {
    drawing_.Text(0, top_ - 10, "source parts", "muted");
    drawing_.Text(left_, kLegend + 12, "target parts", "muted");
    for (int64_t row = 0; row < traffic_.from.size(); ++row) {
      drawing_.Text(left_ - 8, Middle(row), traffic_.from.Label(row),
                    "small end");
    }
    for (int64_t column = 0; column < traffic_.to.size(); ++column) {
      drawing_.VerticalText(X(column) + cell_ / 2 + 4, top_ - 4,
                            traffic_.to.Label(column), "small");
    }
    drawing_.Rect({.x = left_,
                   .y = top_,
                   .width = X(traffic_.to.size()) - left_,
                   .height = Y(traffic_.from.size()) - top_},
                  "frame");
  }

  void PaintCell(int64_t row, int64_t column) {
    const int64_t bytes = traffic_.At(row, column);
    if (bytes == 0) return;
    const std::string words = HumanBytes(bytes);
    drawing_.BeginGroup(absl::StrCat("from ", traffic_.from.Label(row), "\nto ",
                                     traffic_.to.Label(column), "\n", words));
    drawing_.Rect({.x = X(column) + 1,
                   .y = Y(row) + 1,
                   .width = cell_ - 2,
                   .height = cell_ - 2},
                  "first", Opacity(Share(bytes, most_)));
    if (cell_ >= kTextCell) {
      drawing_.Text(X(column) + cell_ / 2, Middle(row), words, "small middle");
    }
    drawing_.EndGroup();
  }

  void PaintTotals() {
    const double right = X(traffic_.to.size()) + 10;
    drawing_.Text(right, top_ - 10, "sent", "muted");
    for (int64_t row = 0; row < traffic_.from.size(); ++row) {
      const int64_t bytes = traffic_.sent[row];
      const double length = kTotalBar * Share(bytes, Most(traffic_.sent));
      drawing_.Rect({.x = right,
                     .y = Y(row) + cell_ / 2 - 5,
                     .width = length,
                     .height = 10},
                    "second");
      drawing_.Text(right + length + 5, Middle(row), HumanBytes(bytes),
                    "small");
    }
    const double below = Y(traffic_.from.size()) + 10;
    drawing_.Text(left_ - 8, below + 10, "received", "muted end");
    for (int64_t column = 0; column < traffic_.to.size(); ++column) {
      const int64_t bytes = traffic_.received[column];
      const double length = kTotalBar * Share(bytes, Most(traffic_.received));
      const double middle = X(column) + cell_ / 2;
      drawing_.Rect(
          {.x = middle - 5, .y = below, .width = 10, .height = length},
          "second");
      drawing_.VerticalText(middle + 4, below + length + 5, HumanBytes(bytes),
                            "small end");
    }
  }

  const Traffic& traffic_;
  const int64_t most_;
  const double cell_;
  const double left_;  // of the grid
  const double top_;   // of the grid
  Drawing drawing_;
};

void FillTable(const Traffic& traffic, Picture& picture) {
  picture.columns = {{"target parts"},
                     {"bytes received", Align::kRight},
                     {"most from source parts"},
                     {"bytes of these", Align::kRight}};
  for (int64_t column = 0; column < traffic.to.size(); ++column) {
    int64_t most = 0;
    for (int64_t row = 1; row < traffic.from.size(); ++row) {
      if (traffic.At(row, column) > traffic.At(most, column)) most = row;
    }
    picture.rows.push_back(
        {traffic.to.Label(column), HumanBytes(traffic.received[column]),
         traffic.from.Label(most), HumanBytes(traffic.At(most, column))});
  }
}

// The layout of the source, if it is one that its parts can have.
std::optional<Layout> TrustedLayout(const reshard::CheckpointState& state,
                                    std::span<const int64_t> parts) {
  if (!state.layout.has_value() || parts.back() >= state.layout->world_size()) {
    return std::nullopt;
  }
  return state.layout;
}

}  // namespace

PartGroups::PartGroups(const std::optional<Layout>& layout,
                       std::span<const int64_t> parts) {
  const Layout assumed =
      layout.value_or(Layout{.data = parts.empty() ? 1 : parts.back() + 1});
  const auto [stage_ranks, group_ranks] = GroupingOf(assumed);
  int64_t group_end = 0;
  for (const int64_t part : parts) {
    if (!groups_.empty() && part < group_end) continue;
    const int64_t stages_begin = part / stage_ranks * stage_ranks;
    const int64_t first =
        stages_begin + (part - stages_begin) / group_ranks * group_ranks;
    group_end = std::min(first + group_ranks, stages_begin + stage_ranks);
    groups_.push_back({first, LabelOf(assumed, first, group_end)});
  }
}

int64_t PartGroups::GroupOf(int64_t part) const {
  const auto beyond = std::partition_point(
      groups_.begin(), groups_.end(),
      [part](const Group& group) { return group.first <= part; });
  return beyond - groups_.begin() - 1;
}

absl::StatusOr<Picture> PlanPicture(const reshard::OpenedSource& opened,
                                    const Layout& layout,
                                    const reshard::CopyChoice& choice) {
  const ckpt::Reader& source = *opened.reader;
  SS_ASSIGN_OR_RETURN(const reshard::CheckpointState state,
                      reshard::ReadState(source));
  SS_RETURN_IF_ERROR(Validate(state.model, layout));
  SS_ASSIGN_OR_RETURN(const reshard::CopyPlan plan,
                      reshard::PlanCopy(source, state.model, layout, choice));
  std::vector<int64_t> source_parts;
  for (const ckpt::Part& part : source.table().parts) {
    source_parts.push_back(part.number);
  }
  std::vector<int64_t> target_parts;
  for (const reshard::TargetPart& part : plan.parts) {
    target_parts.push_back(part.number);
  }
  Traffic traffic({TrustedLayout(state, source_parts), source_parts},
                  {layout, target_parts});
  SS_RETURN_IF_ERROR(reshard::VisitMoves(
      source, plan,
      [&traffic](const reshard::PartMove& move) { traffic.Add(move); }));
  Picture picture;
  picture.title =
      absl::StrCat("What moves: ", ToString(opened.format, state.layout),
                   " to ", ToString(layout));
  picture.subtitle = absl::StrCat(
      "step ", source.step(), ", ", HumanBytes(traffic.total), " from ",
      source_parts.size(), " part files to ", target_parts.size());
  Painter(traffic).Paint(picture);
  FillTable(traffic, picture);
  return picture;
}

}  // namespace shardshift
