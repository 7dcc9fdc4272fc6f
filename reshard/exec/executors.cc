// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/executors.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/content.h"
#include "reshard/plan/plan.h"

namespace shardshift::reshard {
namespace {

std::span<const std::byte> Bytes(const float* data, int64_t count) {
  return std::as_bytes(std::span(data, static_cast<size_t>(count)));
}

}  // namespace

std::vector<ckpt::FragmentSpec> FragmentSpecs(
    const std::vector<LogicalTensor>& tensors, std::span<const WriteItem> items,
    Content content) {
  std::vector<ckpt::FragmentSpec> specs;
  specs.reserve(items.size());
  for (const WriteItem& item : items) {
    specs.push_back({.tensor = tensors[item.tensor].name,
                     .role = RoleAt(content, item.role),
                     .dtype = ckpt::DType::kF32,
                     .shape = tensors[item.tensor].shape,
                     .box = item.box});
  }
  return specs;
}

absl::Status AppendReads(const ckpt::Reader& reader, int64_t tensor,
                         std::span<const BoxBuffer> buffers,
                         std::vector<ckpt::FragmentRead>& reads) {
  std::vector<ckpt::Box> sources;
  for (const ckpt::Fragment& fragment : reader.Fragments(tensor)) {
    sources.push_back(fragment.box);
  }
  std::vector<ckpt::Box> targets;
  targets.reserve(buffers.size());
  for (const BoxBuffer& buffer : buffers) targets.push_back(buffer.box);

  absl::StatusOr<std::vector<BoxCopy>> copies = PlanCopies(sources, targets);
  if (!copies.ok()) {
    return Annotate(copies.status(),
                    absl::StrCat(reader.directory(), ": ",
                                 Describe(reader.table().tensors[tensor])));
  }
  for (BoxCopy& copy : *copies) {
    const BoxBuffer& target = buffers[copy.target];
    reads.push_back({reader.FirstFragment(tensor) + copy.source,
                     std::move(copy.box), target.data, target.box});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ckpt::FragmentRead>> PlanLoad(
    const ckpt::Reader& reader, const std::vector<LogicalTensor>& tensors,
    std::span<const Piece> pieces,
    absl::FunctionRef<float*(const Piece&, int64_t role)> memory,
    std::span<const char* const> roles) {
  std::map<int64_t, std::vector<const Piece*>> by_tensor;
  for (const Piece& piece : pieces) by_tensor[piece.tensor].push_back(&piece);
  std::vector<BoxBuffer> buffers;
  std::vector<ckpt::FragmentRead> reads;
  for (const auto& [tensor, owned] : by_tensor) {
    for (size_t role = 0; role < roles.size(); ++role) {
      SS_ASSIGN_OR_RETURN(const int64_t stored,
                          reader.FindTensor(tensors[tensor].name, roles[role]));
      buffers.clear();
      for (const Piece* piece : owned) {
        float* data = memory(*piece, static_cast<int64_t>(role));
        buffers.push_back({piece->box, reinterpret_cast<std::byte*>(data)});
      }
      const size_t first = reads.size();
      SS_RETURN_IF_ERROR(AppendReads(reader, stored, buffers, reads));
      for (size_t i = first; i < reads.size(); ++i) {
        reads[i].as = ckpt::DType::kF32;
      }
    }
  }
  return reads;
}

std::vector<std::span<const std::byte>> ImagesOf(
    std::span<const WriteItem> items, std::span<const Piece> pieces,
    absl::FunctionRef<const float*(const Piece&, int64_t role)> memory) {
  std::map<std::pair<int64_t, ckpt::Box>, const Piece*> by_box;
  for (const Piece& piece : pieces) {
    by_box[{piece.tensor, piece.box}] = &piece;
  }
  std::vector<std::span<const std::byte>> images;
  images.reserve(items.size());
  for (const WriteItem& item : items) {
    const Piece& piece = *by_box.at({item.tensor, item.box});
    images.push_back(
        Bytes(memory(piece, item.role), ckpt::NumElements(item.box)));
  }
  return images;
}

absl::StatusOr<std::optional<ckpt::PartReceipt>> WritePartFromMemory(
    const std::string& directory, int64_t part, const ckpt::CheckpointId& id,
    const std::vector<LogicalTensor>& tensors, std::span<const WriteItem> items,
    std::span<const std::span<const std::byte>> images) {
  if (items.empty()) return std::nullopt;
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::PartWriter> writer,
                      ckpt::PartWriter::Create(directory, part, id,
                                               FragmentSpecs(tensors, items)));
  SS_RETURN_IF_ERROR(writer->WriteFragments(images));
  SS_ASSIGN_OR_RETURN(ckpt::PartReceipt receipt, writer->Close());
  return receipt;
}

}  // namespace shardshift::reshard
