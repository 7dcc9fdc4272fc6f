// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_rank.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/model_map.h"
#include "reshard/layout/stages.h"
#include "tools/rank_words.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

using reshard::LocalBuffer;
using reshard::Parameter;
using reshard::Piece;
using reshard::Range;

constexpr size_t kMaxPartNames = 8;

reshard::RankSize SizeOf(const reshard::RankState& state) {
  reshard::RankSize size;
  for (const LocalBuffer& buffer : state.buffers) {
    size.parameters += buffer.buffer.num_elements;
    for (const Range& owned : buffer.owned) size.owned += owned.size();
  }
  return size;
}

reshard::LayerRange LayersOf(const RankReport& report,
                             const LocalBuffer& buffer) {
  const int64_t stage = CoordinatesOf(report.layout, report.rank).pipeline;
  return LayersOfChunksOn(report.model, report.layout, stage)[buffer.chunk];
}

const char* SplitText(reshard::Split split) {
  switch (split) {
    case reshard::Split::kReplicated:
      return "whole";
    case reshard::Split::kRows:
      return "rows";
    case reshard::Split::kColumns:
      return "columns";
    case reshard::Split::kQkv:
      return "query groups";
    case reshard::Split::kVocabulary:
      return "vocabulary";
  }
  return "";
}

std::string RoleText(const Parameter& parameter) {
  return absl::StrCat(SplitText(parameter.split),
                      parameter.is_copy ? ", copy of the embedding"
                      : parameter.shared_embedding
                          ? ", tied to the output layer"
                          : "");
}

std::string RangeText(const Range& range) {
  return absl::StrCat("[", range.begin, ":", range.end, "]");
}

std::string BoxText(const RankReport& report, const Piece& piece) {
  return absl::StrCat(report.tensors[piece.tensor].name,
                      ckpt::ToString(piece.box));
}

Range RangeOf(const Piece& piece) {
  return {piece.offset, piece.offset + ckpt::NumElements(piece.box)};
}

// Its pieces, with offsets in the flat buffer, in which it begins at `begin`.
std::vector<Piece> PlacedPieces(const Parameter& parameter, int64_t begin) {
  std::vector<Piece> pieces = parameter.pieces;
  for (Piece& piece : pieces) piece.offset += begin;
  return pieces;
}

using Rows = std::vector<std::vector<std::string>>;

void AppendRows(const RankReport& report, const LocalBuffer& buffer, size_t p,
                const std::vector<Range>& padding, Rows& rows) {
  const Parameter& parameter = buffer.parameters[p];
  const Range& range = buffer.buffer.parameters[p];
  const size_t first = rows.size();
  for (const Piece& piece : PlacedPieces(parameter, range.begin)) {
    rows.push_back(
        {"", "", "", RangeText(RangeOf(piece)), BoxText(report, piece)});
  }
  for (const Range& pad : padding) {
    const Range part = Intersect(pad, range);
    if (!part.empty()) {
      rows.push_back({"", "", "", RangeText(part), "padding"});
    }
  }
  if (first == rows.size()) return;
  rows[first][0] = parameter.name;
  rows[first][1] = ckpt::ToString(parameter.shape);
  rows[first][2] = RoleText(parameter);
}

std::string OwnedText(const RankReport& report, const LocalBuffer& buffer) {
  if (buffer.buffer.shards == 1) {
    return "owns the optimizer state of all of it\n";
  }
  std::vector<std::string> ranges;
  for (const Range& owned : buffer.owned) ranges.push_back(RangeText(owned));
  Rows rows;
  for (const Piece& piece : buffer.pieces) {
    rows.push_back({RangeText(RangeOf(piece)), BoxText(report, piece)});
  }
  return absl::StrCat("owns the optimizer state of ",
                      absl::StrJoin(ranges, ", "), ", one of ",
                      buffer.buffer.shards, " shards:\n",
                      FormatTable({{"elements"}, {"logical tensor"}}, rows));
}

std::string BufferText(const RankReport& report, const LocalBuffer& buffer) {
  const reshard::LayerRange layers = LayersOf(report, buffer);
  const std::vector<Range> padding = PaddingOf(buffer);
  int64_t padded = 0;
  for (const Range& range : padding) padded += range.size();
  std::string text = absl::StrFormat(
      "\n%s, model chunk %d (layers %s): %d elements, %d of them padding, "
      "%s\n",
      buffer.experts ? "flat buffer of experts" : "flat buffer", buffer.chunk,
      SpanText(layers.begin, layers.end), buffer.buffer.num_elements, padded,
      CountText(std::ssize(buffer.buffer.buckets), "bucket"));
  if (buffer.parameters.empty()) return text;
  Rows rows;
  for (size_t p = 0; p < buffer.parameters.size(); ++p) {
    AppendRows(report, buffer, p, padding, rows);
  }
  return absl::StrCat(text,
                      FormatTable({{"parameter"},
                                   {"local shape"},
                                   {"cut by"},
                                   {"elements"},
                                   {"logical tensor"}},
                                  rows),
                      OwnedText(report, buffer));
}

std::string ReadsText(const RankReport& report) {
  const reshard::ReadTotals& reads = report.reads;
  std::vector<std::string> names = report.files;
  if (names.size() > kMaxPartNames) {
    names.resize(kMaxPartNames);
    names.emplace_back("...");
  }
  return absl::StrFormat("%s of %d fragments in %d part files%s%s",
                         HumanBytes(reads.bytes), reads.fragments,
                         reads.parts.size(), names.empty() ? "" : ": ",
                         absl::StrJoin(names, ", "));
}

using nlohmann::json;

json RangesJson(const std::vector<Range>& ranges) {
  json list = json::array();
  for (const Range& range : ranges) list.push_back({range.begin, range.end});
  return list;
}

json BoxesJson(const RankReport& report, const std::vector<Piece>& pieces) {
  json list = json::array();
  for (const Piece& piece : pieces) {
    list.push_back({{"tensor", report.tensors[piece.tensor].name},
                    {"start", piece.box.start},
                    {"extent", piece.box.extent},
                    {"offset", piece.offset}});
  }
  return list;
}

json BufferJson(const RankReport& report, const LocalBuffer& buffer) {
  json parameters = json::array();
  for (size_t p = 0; p < buffer.parameters.size(); ++p) {
    const Parameter& parameter = buffer.parameters[p];
    const Range& range = buffer.buffer.parameters[p];
    parameters.push_back(
        {{"name", parameter.name},
         {"shape", parameter.shape},
         {"cut_by", SplitText(parameter.split)},
         {"shared_embedding", parameter.shared_embedding},
         {"is_copy", parameter.is_copy},
         {"range", {range.begin, range.end}},
         {"boxes", BoxesJson(report, PlacedPieces(parameter, range.begin))}});
  }
  json buckets = json::array();
  for (const auto& bucket : buffer.buffer.buckets) {
    buckets.push_back({bucket.range.begin, bucket.range.end});
  }
  const reshard::LayerRange layers = LayersOf(report, buffer);
  return {{"chunk", buffer.chunk},
          {"experts", buffer.experts},
          {"layers", {layers.begin, layers.end}},
          {"elements", buffer.buffer.num_elements},
          {"buckets", buckets},
          {"shards", buffer.buffer.shards},
          {"parameters", parameters},
          {"padding", RangesJson(PaddingOf(buffer))},
          {"owned", RangesJson(buffer.owned)},
          {"owned_boxes", BoxesJson(report, buffer.pieces)}};
}

}  // namespace

RankReport ReportOf(const reshard::ModelConfig& model,
                    const reshard::Layout& layout, int64_t rank) {
  return {.model = model,
          .layout = layout,
          .rank = rank,
          .tensors = LogicalTensors(model),
          .state = reshard::MakeRankState(model, layout, rank)};
}

std::string RankText(const RankReport& report) {
  std::string text =
      absl::StrCat("rank ", report.rank, " of ", report.layout.world_size(),
                   ", ", ToString(report.layout), "\n");
  std::vector<std::string> places;
  for (const AxisPlace& place :
       PlacesOf(report.model, report.layout, report.rank)) {
    places.push_back(
        absl::StrCat(place.axis, " ", place.at, " of ", place.size));
  }
  const StateBytes bytes = BytesOf(SizeOf(report.state));
  absl::StrAppendFormat(
      &text,
      "%s\nin memory  parameters %s, gradients %s, optimizer state %s\n"
      "to load    %s\n",
      absl::StrJoin(places, ", "), HumanBytes(bytes.parameters),
      HumanBytes(bytes.gradients), HumanBytes(bytes.optimizer),
      ReadsText(report));
  for (const LocalBuffer& buffer : report.state.buffers) {
    absl::StrAppend(&text, BufferText(report, buffer));
  }
  return text;
}

json RankJson(const RankReport& report) {
  json buffers = json::array();
  for (const LocalBuffer& buffer : report.state.buffers) {
    buffers.push_back(BufferJson(report, buffer));
  }
  return {{"layout", ToJson(report.layout)},
          {"world_size", report.layout.world_size()},
          {"rank", report.rank},
          {"coordinates", PlacesJson(report.model, report.layout, report.rank)},
          {"bytes", ToJson(BytesOf(SizeOf(report.state)))},
          {"reads",
           {{"fragments", report.reads.fragments},
            {"parts", report.reads.parts},
            {"bytes", report.reads.bytes}}},
          {"buffers", buffers}};
}

}  // namespace shardshift
