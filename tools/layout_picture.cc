// SPDX-License-Identifier: Apache-2.0
#include "tools/layout_picture.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/model_map.h"
#include "reshard/layout/stages.h"
#include "tools/rank_words.h"

namespace shardshift {
namespace {

using reshard::Layout;
using reshard::ModelConfig;

// Ranks shown of an axis; beyond, the middle is left out.
constexpr int64_t kMaxStages = 32;
constexpr int64_t kMaxTensorRanks = 8;
constexpr int64_t kMaxDataRanks = 8;
// Columns that are wide.
constexpr size_t kMaxWide = 4;
// Rows of ranks in all, about.
constexpr int64_t kMaxRows = 64;

// In pixels.
constexpr double kLabels = 190;  // at the left of the grid
constexpr double kHeader = 96;   // above it
constexpr double kLegendWidth = 350;
constexpr double kGapWidth = 60;
constexpr double kNarrow = 160;  // a column
constexpr double kWide = 220;    // with room for bytes
constexpr double kRow = 30;
constexpr double kLine = 15;
constexpr double kPad = 8;
constexpr double kBar = 8;

// What is shown of an axis of `size` ranks: all of them, or the first and the
// last ones with a gap between.
struct Axis {
  Axis(int64_t size_of_axis, int64_t most) : size(size_of_axis) {
    for (int64_t i = 0; i < size; ++i) {
      const bool left_out = size > most && i + 1 >= most && i + 1 < size;
      if (!left_out) shown.push_back(i);
    }
  }
  bool has_gap() const { return std::ssize(shown) < size; }
  // Whether the gap is in front of shown[i].
  bool gap_before(size_t i) const { return has_gap() && i + 1 == shown.size(); }
  std::string gap_text() const {
    return SpanText(shown[shown.size() - 2] + 1, size - 1);
  }

  int64_t size;
  std::vector<int64_t> shown;
};

std::string VocabularyText(const reshard::LocalBuffer& first_stage) {
  for (const reshard::Parameter& parameter : first_stage.parameters) {
    if (parameter.split != reshard::Split::kVocabulary) continue;
    if (parameter.pieces.empty()) return "vocabulary: padding";
    const ckpt::Box& rows = parameter.pieces[0].box;
    return absl::StrCat(
        "vocabulary ", SpanText(rows.start[0], rows.start[0] + rows.extent[0]));
  }
  return "";
}

class Painter {
 public:
  Painter(const ModelConfig& model, const Layout& layout)
      : model_(model),
        layout_(layout),
        stages_(layout.pipeline, kMaxStages),
        tensors_(layout.tensor, kMaxTensorRanks),
        datas_(layout.data,
               std::clamp<int64_t>(kMaxRows / std::ssize(stages_.shown), 3,
                                   kMaxDataRanks)),
        cell_width_(tensors_.shown.size() > kMaxWide ? kNarrow : kWide),
        sizes_(SizesOfRanks(model, layout)) {
    for (const reshard::RankSize& size : sizes_) {
      most_bytes_ = std::max(most_bytes_, BytesOf(size).total());
    }
  }

  Picture Paint() {
    Picture picture;
    picture.title = absl::StrCat("Who holds what: ", ToString(layout_));
    picture.subtitle = absl::StrCat(CountText(layout_.world_size(), "rank"),
                                    "; ", ModelText(model_));
    PaintLegend();
    PaintColumnHeads();
    double y = kHeader;
    for (size_t i = 0; i < stages_.shown.size(); ++i) {
      if (stages_.gap_before(i)) {
        drawing_.Text(
            0, y + kLine,
            absl::StrCat("stages ", stages_.gap_text(), ": not shown"),
            "muted");
        y += kRow;
      }
      y += PaintStage(stages_.shown[i], y) + kPad;
    }
    picture.width = kLabels + std::max(kLegendWidth, GridWidth());
    picture.height = y;
    picture.drawing = std::move(drawing_);
    FillTable(picture);
    return picture;
  }

 private:
  double GridWidth() const {
    return static_cast<double>(tensors_.shown.size()) * cell_width_ +
           (tensors_.has_gap() ? kGapWidth : 0);
  }

  // Where the column of tensors_.shown[i] begins.
  double ColumnX(size_t i) const {
    return kLabels + static_cast<double>(i) * cell_width_ +
           (tensors_.gap_before(i) ? kGapWidth : 0);
  }

  void PaintLegend() {
    double x = kLabels;
    const std::pair<const char*, const char*> entries[] = {
        {"first", "parameters"},
        {"second", "gradients"},
        {"third", "optimizer state"}};
    for (const auto& [fill, words] : entries) {
      drawing_.Rect({.x = x, .y = 0, .width = 12, .height = 12}, fill);
      drawing_.Text(x + 18, 10, words);
      x += 110;
    }
    drawing_.Text(
        kLabels, 30,
        absl::StrCat("bytes as fp32; a whole bar is ", HumanBytes(most_bytes_)),
        "muted");
  }

  void PaintColumnHeads() {
    drawing_.Text(0, kHeader - 28, "pipeline stage", "muted");
    const reshard::ModelMap map(model_, layout_);
    for (size_t i = 0; i < tensors_.shown.size(); ++i) {
      const int64_t tensor = tensors_.shown[i];
      const double x = ColumnX(i) + kPad;
      drawing_.Text(x, kHeader - 28, absl::StrCat("tensor rank ", tensor));
      drawing_.Text(x, kHeader - 12,
                    VocabularyText(map.MakeBuffer({.tensor = tensor})),
                    "small muted");
      if (!tensors_.gap_before(i)) continue;
      drawing_.BeginGroup(
          absl::StrCat("tensor ranks ", tensors_.gap_text(), " are not shown"));
      drawing_.Text(ColumnX(i) - kGapWidth / 2, kHeader - 28, "...",
                    "middle muted");
      drawing_.EndGroup();
    }
  }

  // Gives the height.
  double PaintStage(int64_t stage, double y) {
    const auto rows = static_cast<double>(datas_.shown.size());
    const double gap = datas_.has_gap() ? kLine + 4 : 0;
    const double height = std::max(rows * kRow + gap, 3 * kLine) + kPad;
    PaintStageLabel(stage, y);
    for (size_t i = 0; i < tensors_.shown.size(); ++i) {
      const double x = ColumnX(i);
      drawing_.Rect(
          {.x = x + 2, .y = y, .width = cell_width_ - 4, .height = height},
          "frame");
      double row_y = y + 4;
      for (size_t d = 0; d < datas_.shown.size(); ++d) {
        if (datas_.gap_before(d)) {
          drawing_.Text(x + kPad, row_y + 12,
                        absl::StrCat("data ", datas_.gap_text(), ": not shown"),
                        "small muted");
          row_y += gap;
        }
        PaintRank({.tensor = tensors_.shown[i],
                   .pipeline = stage,
                   .data = datas_.shown[d]},
                  x + kPad, row_y);
        row_y += kRow;
      }
    }
    return height;
  }

  void PaintStageLabel(int64_t stage, double y) {
    const std::vector<reshard::LayerRange> chunks =
        LayersOfChunksOn(model_, layout_, stage);
    const std::string all = absl::StrCat("layers ", LayersText(chunks));
    drawing_.BeginGroup(all);
    drawing_.Text(0, y + kLine, absl::StrCat("stage ", stage));
    drawing_.Text(0, y + 2 * kLine,
                  absl::StrCat("layers ", LayersText(chunks, 3)), "small");
    drawing_.Text(0, y + 3 * kLine - 2, EndsText(layout_, stage), "small");
    drawing_.EndGroup();
  }

  void PaintRank(const reshard::RankCoordinates& at, double x, double y) {
    const int64_t rank = RankOf(layout_, at);
    const StateBytes bytes = BytesOf(sizes_[rank]);
    std::string label = absl::StrCat("rank ", rank);
    if (model_.has_experts()) {
      absl::StrAppend(&label, ", experts ", ExpertsText(model_, layout_, rank));
    }
    drawing_.BeginGroup(RankTitle(rank, bytes));
    drawing_.Text(x, y + 11, label, "small");
    if (cell_width_ == kWide) {
      drawing_.Text(x + cell_width_ - 2 * kPad, y + 11,
                    HumanBytes(bytes.total()), "small muted end");
    }
    const std::pair<const char*, int64_t> segments[] = {
        {"first", bytes.parameters},
        {"second", bytes.gradients},
        {"third", bytes.optimizer}};
    for (const auto& [fill, amount] : segments) {
      const double width = (cell_width_ - 2 * kPad) *
                           static_cast<double>(amount) /
                           static_cast<double>(most_bytes_);
      drawing_.Rect({.x = x, .y = y + 15, .width = width, .height = kBar},
                    fill);
      x += width;
    }
    drawing_.EndGroup();
  }

  std::string RankTitle(int64_t rank, const StateBytes& bytes) const {
    std::vector<std::string> places;
    for (const AxisPlace& place : PlacesOf(model_, layout_, rank)) {
      places.push_back(absl::StrCat(place.axis, " ", place.at));
    }
    return absl::StrCat("rank ", rank, ": ", absl::StrJoin(places, ", "),
                        "\nparameters ", HumanBytes(bytes.parameters),
                        ", gradients ", HumanBytes(bytes.gradients),
                        ", optimizer state ", HumanBytes(bytes.optimizer));
  }

  void FillTable(Picture& picture) const {
    picture.columns = {{"stage", Align::kRight},
                       {"layers"},
                       {"and"},
                       {"ranks"},
                       {"most bytes of a rank", Align::kRight},
                       {"of all its ranks", Align::kRight}};
    const int64_t ranks = layout_.tensor * layout_.data;
    for (int64_t stage = 0; stage < layout_.pipeline; ++stage) {
      int64_t most = 0;
      int64_t sum = 0;
      for (int64_t i = 0; i < ranks; ++i) {
        const int64_t bytes = BytesOf(sizes_[stage * ranks + i]).total();
        most = std::max(most, bytes);
        sum += bytes;
      }
      picture.rows.push_back(
          {absl::StrCat(stage),
           LayersText(LayersOfChunksOn(model_, layout_, stage)),
           EndsText(layout_, stage),
           SpanText(stage * ranks, (stage + 1) * ranks), HumanBytes(most),
           HumanBytes(sum)});
    }
  }

  const ModelConfig& model_;
  const Layout& layout_;
  const Axis stages_;
  const Axis tensors_;
  const Axis datas_;
  const double cell_width_;
  const std::vector<reshard::RankSize> sizes_;
  int64_t most_bytes_ = 1;
  Drawing drawing_;
};

}  // namespace

Picture LayoutPicture(const ModelConfig& model, const Layout& layout) {
  return Painter(model, layout).Paint();
}

}  // namespace shardshift
