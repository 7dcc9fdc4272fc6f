// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/generic_tensors.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/dense_parts.h"
#include "reshard/plan/box_index.h"

namespace shardshift::reshard {
namespace {

// What two chunks of a tensor have in common, byte range by byte range.
class ReplicaFinder {
 public:
  ReplicaFinder(const std::string& name, int64_t item_size,
                const std::vector<SourceFile>& files,
                std::vector<ReplicaCheck>& checks)
      : name_(name), item_size_(item_size), files_(files), checks_(checks) {}

  // Gives how many elements. REQUIRES: both are dense.
  int64_t Add(const SourceChunk& chunk, const SourceChunk& copy) {
    const std::optional<ckpt::Box> common =
        ckpt::Intersect(chunk.box, copy.box);
    if (!common.has_value()) return 0;
    for (const DensePart& part : DenseParts(chunk.box, *common)) {
      for (const DensePart& run : DenseParts(copy.box, part.box)) {
        const int64_t first =
            part.offset + ckpt::RowMajorBounds(part.box, run.box).first;
        AddRun(chunk, first, copy, run.offset, ckpt::NumElements(run.box));
      }
    }
    return ckpt::NumElements(*common);
  }

 private:
  void AddRun(const SourceChunk& chunk, int64_t first, const SourceChunk& copy,
              int64_t copy_first, int64_t count) {
    ReplicaCheck check;
    check.name = name_;
    check.path = files_[chunk.file].path;
    check.range = {chunk.offset_bytes + first * item_size_, count * item_size_};
    check.other_path = files_[copy.file].path;
    check.other_range = {copy.offset_bytes + copy_first * item_size_,
                         count * item_size_};
    if (!checks_.empty() && Follows(checks_.back(), check)) {
      checks_.back().range.num_bytes += check.range.num_bytes;
      checks_.back().other_range.num_bytes += check.range.num_bytes;
    } else {
      checks_.push_back(std::move(check));
    }
  }

  static bool Follows(const ReplicaCheck& a, const ReplicaCheck& b) {
    return a.name == b.name && a.path == b.path &&
           a.other_path == b.other_path &&
           a.range.end_bytes() == b.range.offset_bytes &&
           a.other_range.end_bytes() == b.other_range.offset_bytes;
  }

  const std::string& name_;
  const int64_t item_size_;
  const std::vector<SourceFile>& files_;
  std::vector<ReplicaCheck>& checks_;
};

}  // namespace

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
  const ckpt::Box whole = ckpt::WholeBox(info.shape);
  if (is_empty) {
    SourceTensor& tensor = tensors_.tensors[IndexOf(info)];
    SS_RETURN_IF_ERROR(CheckInfo(tensor, info));
    if (tensor.chunks.empty()) {
      tensor.chunks.push_back({whole, file, offset_bytes, 0});
    }
    return absl::OkStatus();
  }
  for (ckpt::Box& box : ckpt::RowMajorRange(whole, first, last)) {
    const int64_t num_bytes =
        ckpt::NumElements(box) * ckpt::ItemSize(info.dtype);
    SS_RETURN_IF_ERROR(AddBox(info, std::move(box), file, offset_bytes));
    offset_bytes += num_bytes;
  }
  return absl::OkStatus();
}

absl::Status GenericTensors::CheckInfo(const SourceTensor& tensor,
                                       const GenericInfo& info) const {
  if (tensor.dtype == info.dtype && tensor.shape == info.shape) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      tensor.key, " is ", ckpt::Name(info.dtype), " ",
      ckpt::ToString(info.shape), ", elsewhere ", ckpt::Name(tensor.dtype), " ",
      ckpt::ToString(tensor.shape)));
}

absl::Status GenericTensors::AddBox(const GenericInfo& info, ckpt::Box box,
                                    int64_t file, int64_t offset_bytes) {
  SourceTensor& tensor = tensors_.tensors[IndexOf(info)];
  SS_RETURN_IF_ERROR(CheckInfo(tensor, info));
  tensor.chunks.push_back({std::move(box), file, offset_bytes, 0});
  return absl::OkStatus();
}

absl::Status GenericTensors::AddCopy(const GenericInfo& info, ckpt::Box box,
                                     int64_t file, int64_t offset_bytes) {
  const size_t index = IndexOf(info);
  SS_RETURN_IF_ERROR(CheckInfo(tensors_.tensors[index], info));
  copies_[index].push_back({std::move(box), file, offset_bytes, 0});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ReplicaCheck>> GenericTensors::Replicas() const {
  std::vector<ReplicaCheck> checks;
  for (const auto& [index, copies] : copies_) {
    SS_RETURN_IF_ERROR(AppendReplicas(tensors_.tensors[index], copies, checks));
  }
  return checks;
}

absl::Status GenericTensors::AppendReplicas(
    const SourceTensor& tensor, const std::vector<SourceChunk>& copies,
    std::vector<ReplicaCheck>& checks) const {
  std::vector<ckpt::Box> boxes;
  boxes.reserve(tensor.chunks.size());
  for (const SourceChunk& chunk : tensor.chunks) boxes.push_back(chunk.box);
  const BoxIndex index(boxes);
  ReplicaFinder finder(tensor.key, ckpt::ItemSize(tensor.dtype), tensors_.files,
                       checks);
  std::vector<int64_t> found;
  for (const SourceChunk& copy : copies) {
    found.clear();
    index.AppendOverlaps(copy.box, found);
    std::sort(found.begin(), found.end());
    int64_t num_elements = 0;
    for (const int64_t i : found) {
      if (tensor.chunks[i].column_pitch != 0) {
        return absl::UnimplementedError(absl::StrCat(
            tensor.key, " lies column by column in ",
            tensors_.files[tensor.chunks[i].file].path, ", beside a copy"));
      }
      num_elements += finder.Add(tensor.chunks[i], copy);
    }
    if (num_elements == ckpt::NumElements(copy.box)) continue;
    return absl::DataLossError(absl::StrCat(
        tensor.key, ": ", tensors_.files[copy.file].path, " has a copy of ",
        ckpt::ToString(copy.box), ", which is not there otherwise"));
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
