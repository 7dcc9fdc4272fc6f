// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/local_image.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/dtype.h"
#include "reshard/formats/flat_buckets.h"

namespace shardshift::reshard {
namespace {

// A run of the local elements, and the box of the whole parameter that it is.
struct LocalRun {
  int64_t begin = 0;
  ckpt::Box box;
};

ckpt::Shape WholeShape(const Parameter& parameter, int64_t ranks) {
  ckpt::Shape shape = parameter.shape;
  if (parameter.split == Split::kReplicated) return shape;
  shape[parameter.split == Split::kColumns ? 1 : 0] *= ranks;
  return shape;
}

std::vector<LocalRun> RunsOf(const Parameter& parameter,
                             const TensorShare& share) {
  ckpt::Box box = ckpt::WholeBox(parameter.shape);
  if (parameter.split == Split::kReplicated) return {{0, box}};
  if (parameter.split == Split::kColumns) {
    box.start[1] = share.rank * box.extent[1];
    return {{0, box}};
  }
  if (parameter.split != Split::kRows) {
    box.start[0] = share.rank * box.extent[0];
    return {{0, box}};
  }
  // Of gate above up, a share of each.
  std::vector<LocalRun> runs;
  int64_t first_row = 0;
  for (const Piece& piece : parameter.pieces) {
    const int64_t rows = piece.box.extent[0];
    box.start[0] = first_row + share.rank * rows;
    box.extent[0] = rows;
    runs.push_back({piece.offset, box});
    first_row += share.ranks * rows;
  }
  return runs;
}

class ImageMaker {
 public:
  // `whole`, a box of the stored tensor, is a run of the image from `begin` on.
  ImageMaker(ckpt::Box whole, int64_t begin, int64_t item_size,
             SourceTensor& image)
      : whole_(std::move(whole)),
        begin_(begin),
        item_size_(item_size),
        image_(image) {}

  void Add(const SourceChunk& chunk) {
    const std::optional<ckpt::Box> common = ckpt::Intersect(whole_, chunk.box);
    if (common.has_value()) AddRuns(chunk, *common);
  }

 private:
  // A box that is no run of both goes row by row.
  void AddRuns(const SourceChunk& chunk, const ckpt::Box& box) {
    const int64_t size = ckpt::NumElements(box);
    const auto in_chunk = ckpt::RowMajorBounds(chunk.box, box);
    const auto in_image = ckpt::RowMajorBounds(whole_, box);
    if (in_chunk.last - in_chunk.first + 1 == size &&
        in_image.last - in_image.first + 1 == size) {
      image_.chunks.push_back({{{begin_ + in_image.first}, {size}},
                               chunk.file,
                               chunk.offset_bytes + in_chunk.first * item_size_,
                               0});
      return;
    }
    size_t dim = 0;
    while (box.extent[dim] == 1) ++dim;
    for (int64_t i = 0; i < box.extent[dim]; ++i) {
      ckpt::Box row = box;
      row.start[dim] += i;
      row.extent[dim] = 1;
      AddRuns(chunk, row);
    }
  }

  const ckpt::Box whole_;
  const int64_t begin_;
  const int64_t item_size_;
  SourceTensor& image_;
};

}  // namespace

absl::StatusOr<SourceTensor> LocalImage(const Parameter& parameter,
                                        const TensorShare& share,
                                        const SourceTensor& stored,
                                        const ckpt::Shape& index) {
  const ckpt::Shape whole = WholeShape(parameter, share.ranks);
  const bool fits =
      stored.shape.size() == index.size() + whole.size() &&
      std::equal(whole.begin(), whole.end(),
                 stored.shape.begin() + static_cast<ptrdiff_t>(index.size()));
  if (!fits) {
    return absl::DataLossError(
        absl::StrCat(stored.key, " has shape ", ckpt::ToString(stored.shape),
                     ", by the arguments it ends in ", ckpt::ToString(whole)));
  }
  SourceTensor image{.key = stored.key,
                     .dtype = stored.dtype,
                     .shape = {parameter.num_elements()},
                     .chunks = {}};
  for (const LocalRun& run : RunsOf(parameter, share)) {
    ckpt::Box box = {index, ckpt::Shape(index.size(), 1)};
    box.start.insert(box.start.end(), run.box.start.begin(),
                     run.box.start.end());
    box.extent.insert(box.extent.end(), run.box.extent.begin(),
                      run.box.extent.end());
    ImageMaker maker(std::move(box), run.begin, ckpt::ItemSize(stored.dtype),
                     image);
    for (const SourceChunk& chunk : stored.chunks) {
      if (chunk.column_pitch != 0) {
        return absl::UnimplementedError(
            absl::StrCat(stored.key, " lies column by column in its file"));
      }
      maker.Add(chunk);
    }
  }
  std::sort(
      image.chunks.begin(), image.chunks.end(),
      [](const SourceChunk& a, const SourceChunk& b) { return a.box < b.box; });
  return image;
}

void AppendRange(const SourceTensor& from, int64_t begin, int64_t end,
                 int64_t to, SourceTensor& into) {
  auto chunk = std::partition_point(
      from.chunks.begin(), from.chunks.end(), [begin](const SourceChunk& c) {
        return c.box.start[0] + c.box.extent[0] <= begin;
      });
  for (; chunk != from.chunks.end() && chunk->box.start[0] < end; ++chunk) {
    const int64_t first = chunk->box.start[0];
    const Range common =
        Intersect({first, first + chunk->box.extent[0]}, {begin, end});
    into.chunks.push_back({{{to + common.begin - begin}, {common.size()}},
                           chunk->file,
                           chunk->offset_bytes + (common.begin - first) *
                                                     ckpt::ItemSize(from.dtype),
                           0});
  }
}

}  // namespace shardshift::reshard
