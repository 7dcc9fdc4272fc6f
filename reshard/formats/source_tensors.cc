// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/source_tensors.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/dense_parts.h"

namespace shardshift::reshard {
namespace {

// Adds the part of a piece that lies in one chunk.
class ChunkAdder {
 public:
  ChunkAdder(const SourceTensor& source, const SourceChunk& chunk,
             const LogicalTensor& tensor, const std::string& role,
             ckpt::ForeignFilesBuilder& builder)
      : chunk_(chunk),
        item_size_(ckpt::ItemSize(source.dtype)),
        tensor_{tensor.name, role, source.dtype, tensor.shape},
        builder_(builder) {}

  // `stored`, a box of the stored tensor, is box `logical` of the logical one,
  // of the same extents but for leading ones.
  absl::Status Add(const ckpt::Box& stored, const ckpt::Box& logical) {
    const std::optional<ckpt::Box> common = ckpt::Intersect(stored, chunk_.box);
    if (!common.has_value()) return absl::OkStatus();
    const size_t leading = stored.extent.size() - logical.extent.size();
    ckpt::Box box = logical;
    for (size_t d = 0; d < box.extent.size(); ++d) {
      box.start[d] += common->start[leading + d] - stored.start[leading + d];
      box.extent[d] = common->extent[leading + d];
    }
    if (chunk_.column_pitch != 0) return AddColumns(*common, box);
    for (const DensePart& part : DenseParts(chunk_.box, *common)) {
      ckpt::Box run = box;
      for (size_t d = 0; d < run.extent.size(); ++d) {
        run.start[d] +=
            part.box.start[leading + d] - common->start[leading + d];
        run.extent[d] = part.box.extent[leading + d];
      }
      SS_RETURN_IF_ERROR(builder_.Add(
          tensor_, std::move(run),
          {chunk_.file, chunk_.offset_bytes + part.offset * item_size_, 0}));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddColumns(const ckpt::Box& stored, const ckpt::Box& logical) {
    if (stored.extent.size() != 2 || logical.extent.size() != 2) {
      return absl::UnimplementedError(absl::StrCat(
          tensor_.name,
          " is no matrix, but lies column by column in its file; `reshard "
          "--generic` takes it"));
    }
    const int64_t first =
        stored.start[0] - chunk_.box.start[0] +
        (stored.start[1] - chunk_.box.start[1]) * chunk_.column_pitch;
    return builder_.Add(tensor_, logical,
                        {chunk_.file, chunk_.offset_bytes + first * item_size_,
                         chunk_.column_pitch});
  }

  const SourceChunk& chunk_;
  const int64_t item_size_;
  const ckpt::Tensor tensor_;
  ckpt::ForeignFilesBuilder& builder_;
};

ckpt::Shape Flipped(const ckpt::Shape& shape) { return {shape[1], shape[0]}; }

// A chunk of a stored tensor as one of its image.
absl::StatusOr<SourceChunk> ChunkOfImage(const StoredTensor& stored,
                                         const SourceTensor& source,
                                         const SourceChunk& chunk) {
  if (!stored.transposed) return chunk;
  SourceChunk flipped = chunk;
  flipped.box = {Flipped(chunk.box.start), Flipped(chunk.box.extent)};
  if (chunk.column_pitch == 0) {
    flipped.column_pitch = chunk.box.extent[1];
  } else if (chunk.column_pitch == chunk.box.extent[0]) {
    flipped.column_pitch = 0;
  } else {
    return absl::UnimplementedError(
        absl::StrCat(source.key,
                     " lies there with gaps between its columns; make it "
                     "contiguous before it is saved"));
  }
  return flipped;
}

}  // namespace

absl::StatusOr<SourceChunk> PlaceTensor(const TorchTensor& tensor,
                                        int64_t file) {
  SourceChunk placed;
  placed.box = ckpt::WholeBox(tensor.shape);
  placed.file = file;
  placed.offset_bytes = tensor.offset_bytes;
  if (tensor.IsDense()) return placed;
  if (tensor.shape.size() == 2 && tensor.strides[0] == 1 &&
      tensor.strides[1] >= tensor.shape[0]) {
    placed.column_pitch = tensor.strides[1];
    return placed;
  }
  return absl::UnimplementedError(
      absl::StrCat("lies there with strides ", ckpt::ToString(tensor.strides),
                   ", not densely; make it contiguous before it is saved"));
}

ckpt::ForeignPlace PlaceInFile(const StoredTensor& stored, const Piece& piece,
                               int64_t item_size) {
  if (!stored.transposed) return {0, piece.offset * item_size, 0};
  // Rows of the image are columns of the file.
  const int64_t row = piece.offset / ImageShape(stored)[1];
  return {0, row * item_size, ImageShape(stored)[0]};
}

void AddFiles(const SourceTensors& source, ckpt::ForeignFilesBuilder& builder) {
  for (const SourceFile& file : source.files) {
    builder.AddFile(file.path, file.num_bytes);
  }
}

absl::Status AddPieces(const StoredTensor& stored, const SourceTensor& source,
                       const std::vector<LogicalTensor>& tensors,
                       const std::string& role,
                       ckpt::ForeignFilesBuilder& builder) {
  std::vector<SourceChunk> chunks;
  chunks.reserve(source.chunks.size());
  for (const SourceChunk& chunk : source.chunks) {
    SS_ASSIGN_OR_RETURN(SourceChunk of_image,
                        ChunkOfImage(stored, source, chunk));
    chunks.push_back(std::move(of_image));
  }
  const ckpt::Box image = ckpt::WholeBox(ImageShape(stored));
  for (const Piece& piece : stored.pieces) {
    const LogicalTensor& tensor = tensors[piece.tensor];
    const int64_t end = piece.offset + ckpt::NumElements(piece.box);
    const std::vector<ckpt::Box> boxes =
        ckpt::RowMajorRange(image, piece.offset, end);
    if (boxes.size() != 1) {
      return absl::InternalError(
          absl::StrCat(stored.name, ": a piece is no box of it"));
    }
    for (const SourceChunk& chunk : chunks) {
      SS_RETURN_IF_ERROR(ChunkAdder(source, chunk, tensor, role, builder)
                             .Add(boxes[0], piece.box));
    }
  }
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
