// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/flat_buckets.h"

#include <algorithm>
#include <utility>

#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

Range RangeOf(const SourceChunk& chunk) {
  return {chunk.box.start[0], chunk.box.start[0] + chunk.box.extent[0]};
}

}  // namespace

FlatBuffer LayOutFlat(const MegatronArgs& args, const FlatPlace& place,
                      const std::vector<const ModuleParameter*>& parameters) {
  std::vector<FlatParameter> flat;
  flat.reserve(parameters.size());
  for (const ModuleParameter* p : parameters) {
    flat.push_back({.num_elements = p->parameter->num_elements(),
                    .shared_embedding = p->parameter->shared_embedding});
  }
  FlatBufferOptions options = {
      .data_ranks =
          place.experts ? args.layout.expert_data_size() : args.layout.data,
      .distributed_optimizer = true};
  if (place.is_first_stage && place.chunk == 0) {
    options.bucket_size = args.bucket_size;
  }
  return MakeFlatBuffer(flat, options);
}

int64_t BucketOf(const FlatBuffer& flat, int64_t parameter) {
  const auto bucket = std::partition_point(
      flat.buckets.begin(), flat.buckets.end(),
      [&](const FlatBuffer::Bucket& b) {
        return b.range.end <= flat.parameters[parameter].begin;
      });
  return bucket - flat.buckets.begin();
}

int64_t CompactBegin(const FlatBuffer& flat, int64_t parameter) {
  int64_t begin = flat.parameters[parameter].begin;
  const int64_t bucket = BucketOf(flat, parameter);
  for (int64_t b = 0; b < bucket; ++b) {
    begin -= flat.buckets[b].range.size() - flat.buckets[b].unpadded;
  }
  return begin;
}

int64_t CompactElements(const FlatBuffer& flat) {
  int64_t num_elements = 0;
  for (const FlatBuffer::Bucket& bucket : flat.buckets) {
    num_elements += bucket.unpadded;
  }
  return num_elements;
}

absl::Status AddFlatParameter(const Parameter& parameter, int64_t begin,
                              const SourceTensor& flat, const std::string& role,
                              const std::vector<LogicalTensor>& tensors,
                              ckpt::ForeignFilesBuilder& builder) {
  const int64_t item_size = ckpt::ItemSize(flat.dtype);
  for (const Piece& piece : parameter.pieces) {
    const LogicalTensor& logical = tensors[piece.tensor];
    const int64_t first = begin + piece.offset;
    const Range wanted = {first, first + ckpt::NumElements(piece.box)};
    auto chunk = std::partition_point(
        flat.chunks.begin(), flat.chunks.end(),
        [&](const SourceChunk& c) { return RangeOf(c).end <= wanted.begin; });
    for (; chunk != flat.chunks.end(); ++chunk) {
      const Range common = Intersect(RangeOf(*chunk), wanted);
      if (common.empty()) break;
      int64_t offset_bytes = chunk->offset_bytes +
                             (common.begin - RangeOf(*chunk).begin) * item_size;
      for (ckpt::Box& box : ckpt::RowMajorRange(piece.box, common.begin - first,
                                                common.end - first)) {
        const int64_t num_bytes = ckpt::NumElements(box) * item_size;
        SS_RETURN_IF_ERROR(
            builder.Add({logical.name, role, flat.dtype, logical.shape},
                        std::move(box), {chunk->file, offset_bytes, 0}));
        offset_bytes += num_bytes;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
