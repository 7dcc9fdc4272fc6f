// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_tensors.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/megatron_names.h"
#include "reshard/formats/torch_dist_chunks.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_map.h"

namespace shardshift::reshard {

TensorsByKey IndexByKey(const SourceTensors& source) {
  TensorsByKey by_key;
  for (const SourceTensor& tensor : source.tensors) {
    by_key.emplace(tensor.key, &tensor);
  }
  return by_key;
}

absl::StatusOr<std::vector<StoredTensor>> TorchDistTensors(
    const ModelConfig& model, const TensorsByKey& present) {
  const LocalBuffer whole = ModelMap(model, Layout{}).MakeBuffer({});
  std::map<std::string, StoredTensor> by_key;
  for (const Parameter& parameter : whole.parameters) {
    const std::vector<StackedKey> keys =
        TorchDistKeys(TakeApart(parameter.name), model);
    const StackedKey* found = nullptr;
    for (const StackedKey& key : keys) {
      if (present.contains(key.key)) found = &key;
    }
    if (found == nullptr) {
      return absl::DataLossError(
          absl::StrCat(parameter.name, " is missing, which Megatron calls ",
                       keys.front().key));
    }
    StoredTensor& stored = by_key[found->key];
    stored.name = found->key;
    stored.shape = found->stack;
    stored.shape.insert(stored.shape.end(), parameter.shape.begin(),
                        parameter.shape.end());
    const ckpt::Box at = {found->at, ckpt::Shape(found->at.size(), 1)};
    const int64_t before =
        ckpt::RowMajorBounds(ckpt::WholeBox(found->stack), at).first;
    for (Piece piece : parameter.pieces) {
      piece.offset += before * parameter.num_elements();
      stored.pieces.push_back(std::move(piece));
    }
  }
  std::vector<StoredTensor> tensors;
  tensors.reserve(by_key.size());
  for (auto& [key, stored] : by_key) tensors.push_back(std::move(stored));
  return tensors;
}

absl::StatusOr<SourceTensor> InModelSpace(const SourceTensor& source,
                                          const ckpt::Shape& shape) {
  if (source.shape == shape) return source;
  const auto refuse = [&] {
    return absl::DataLossError(absl::StrCat(
        source.key, " has shape ", ckpt::ToString(source.shape),
        ", by the arguments the parameter has ", ckpt::ToString(shape)));
  };
  if (source.shape.size() != shape.size() + 1) return refuse();
  // How many shards there are along each dim, then the elements of one.
  ckpt::Shape shard = shape;
  int64_t shard_elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (source.shape[d] < 1 || shape[d] % source.shape[d] != 0) return refuse();
    shard[d] = shape[d] / source.shape[d];
    shard_elements *= shard[d];
  }
  if (source.shape.back() != shard_elements) return refuse();
  SourceTensor result = source;
  result.shape = shape;
  result.chunks.clear();
  for (const SourceChunk& chunk : source.chunks) {
    ckpt::Box of_shard = {ckpt::Shape(shape.size()), shard};
    for (size_t d = 0; d < shape.size(); ++d) {
      if (chunk.box.extent[d] != 1) return refuse();
      of_shard.start[d] = chunk.box.start[d] * shard[d];
    }
    const int64_t begin = chunk.box.start.back();
    int64_t offset_bytes = chunk.offset_bytes;
    for (ckpt::Box& box : ckpt::RowMajorRange(
             of_shard, begin, begin + chunk.box.extent.back())) {
      const int64_t num_bytes =
          ckpt::NumElements(box) * ckpt::ItemSize(source.dtype);
      result.chunks.push_back({std::move(box), chunk.file, offset_bytes, 0});
      offset_bytes += num_bytes;
    }
  }
  return result;
}

}  // namespace shardshift::reshard
