// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/generic_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {

int64_t GenericTensors::AddFile(std::string path, int64_t num_bytes) {
  tensors_.files.push_back({std::move(path), num_bytes});
  return std::ssize(tensors_.files) - 1;
}

size_t GenericTensors::IndexOf(const GenericInfo& info) {
  std::string key =
      info.role == "weight"
          ? info.name
          : absl::StrCat("optim.state.", info.name, ".", info.role);
  const auto [it, is_new] =
      by_key_.try_emplace(std::move(key), tensors_.tensors.size());
  if (is_new) {
    tensors_.tensors.push_back({it->first, info.dtype, info.shape, {}});
  }
  return it->second;
}

absl::Status GenericTensors::AddRun(const GenericInfo& info, int64_t first,
                                    int64_t last, int64_t file,
                                    int64_t offset_bytes) {
  const bool is_empty = ckpt::NumElements(info.shape) == 0;
  if (first == last && !is_empty) return absl::OkStatus();
  SourceTensor& tensor = tensors_.tensors[IndexOf(info)];
  if (tensor.dtype != info.dtype || tensor.shape != info.shape) {
    return absl::DataLossError(absl::StrCat(
        tensor.key, " is ", ckpt::Name(info.dtype), " ",
        ckpt::ToString(info.shape), ", elsewhere ", ckpt::Name(tensor.dtype),
        " ", ckpt::ToString(tensor.shape)));
  }
  const ckpt::Box whole = ckpt::WholeBox(info.shape);
  if (is_empty) {
    if (tensor.chunks.empty()) {
      tensor.chunks.push_back({whole, file, offset_bytes, 0});
    }
    return absl::OkStatus();
  }
  for (ckpt::Box& box : ckpt::RowMajorRange(whole, first, last)) {
    const int64_t num_bytes =
        ckpt::NumElements(box) * ckpt::ItemSize(info.dtype);
    tensor.chunks.push_back({std::move(box), file, offset_bytes, 0});
    offset_bytes += num_bytes;
  }
  return absl::OkStatus();
}

absl::Status GenericTensors::AddWhole(absl::string_view name,
                                      absl::string_view role,
                                      const TorchTensor& tensor, int64_t file) {
  const GenericInfo info = {std::string(name), std::string(role), tensor.dtype,
                            tensor.shape};
  SourceTensor& target = tensors_.tensors[IndexOf(info)];
  if (!target.chunks.empty()) {
    return absl::DataLossError(absl::StrCat(target.key, " is there twice"));
  }
  absl::StatusOr<SourceChunk> chunk = PlaceTensor(tensor, file);
  if (!chunk.ok()) return Annotate(chunk.status(), target.key);
  target.chunks.push_back(*std::move(chunk));
  AddCheck(tensor, file);
  return absl::OkStatus();
}

void GenericTensors::AddCheck(const TorchTensor& tensor, int64_t file) {
  tensors_.checks.push_back(CheckOf(tensors_.files[file].path, tensor));
}

}  // namespace shardshift::reshard
