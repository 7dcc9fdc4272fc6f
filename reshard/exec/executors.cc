// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/executors.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/plan/plan.h"

namespace shardshift::reshard {
namespace {

std::vector<ckpt::FragmentSpec> FragmentSpecs(
    const std::vector<LogicalTensor>& tensors,
    std::span<const WriteItem> items) {
  std::vector<ckpt::FragmentSpec> specs;
  specs.reserve(items.size());
  for (const WriteItem& item : items) {
    specs.push_back({.tensor = tensors[item.tensor].name,
                     .role = kOptimizerRoles[item.role],
                     .dtype = ckpt::DType::kF32,
                     .shape = tensors[item.tensor].shape,
                     .box = item.box});
  }
  return specs;
}

std::span<const std::byte> Bytes(const float* data, int64_t count) {
  return std::as_bytes(std::span(data, static_cast<size_t>(count)));
}

absl::StatusOr<ckpt::PartReceipt> WritePart(
    const std::string& directory, int64_t part,
    const std::vector<LogicalTensor>& tensors, std::span<const WriteItem> items,
    int64_t buffer_bytes, ItemSource source) {
  SS_ASSIGN_OR_RETURN(
      const std::unique_ptr<ckpt::PartWriter> writer,
      ckpt::PartWriter::Create(directory, part, FragmentSpecs(tensors, items)));
  const int64_t max_elements =
      std::max<int64_t>(1, buffer_bytes / static_cast<int64_t>(sizeof(float)));
  std::vector<float> image;
  for (size_t i = 0; i < items.size(); ++i) {
    for (const ckpt::Box& slab :
         ckpt::SplitRowMajor(items[i].box, max_elements)) {
      const int64_t count = ckpt::NumElements(slab);
      image.resize(std::max(image.size(), static_cast<size_t>(count)));
      SS_RETURN_IF_ERROR(source(items[i], slab, image.data()));
      SS_RETURN_IF_ERROR(
          writer->Append(static_cast<int64_t>(i), Bytes(image.data(), count)));
    }
  }
  return writer->Close();
}

}  // namespace

absl::Status ReadBoxes(const ckpt::Reader& reader, int64_t tensor,
                       std::span<const BoxBuffer> buffers,
                       ckpt::ReadScratch& scratch) {
  const std::span<const ckpt::Fragment> fragments = reader.Fragments(tensor);
  std::vector<ckpt::Box> sources;
  sources.reserve(fragments.size());
  for (const ckpt::Fragment& fragment : fragments) {
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
  for (const BoxCopy& copy : *copies) {
    const BoxBuffer& target = buffers[copy.target];
    SS_RETURN_IF_ERROR(reader.ReadFragment(fragments[copy.source], copy.box,
                                           target.data, target.box, scratch));
  }
  return absl::OkStatus();
}

absl::Status LoadPieces(
    const ckpt::Reader& reader, const std::vector<LogicalTensor>& tensors,
    std::span<const Piece> pieces,
    absl::FunctionRef<float*(const Piece&, int64_t role)> memory) {
  std::map<int64_t, std::vector<const Piece*>> by_tensor;
  for (const Piece& piece : pieces) by_tensor[piece.tensor].push_back(&piece);
  ckpt::ReadScratch scratch;
  std::vector<BoxBuffer> buffers;
  for (const auto& [tensor, owned] : by_tensor) {
    for (size_t role = 0; role < kOptimizerRoles.size(); ++role) {
      SS_ASSIGN_OR_RETURN(
          const int64_t stored,
          reader.FindTensor(tensors[tensor].name, kOptimizerRoles[role]));
      buffers.clear();
      for (const Piece* piece : owned) {
        float* data = memory(*piece, static_cast<int64_t>(role));
        buffers.push_back({piece->box, reinterpret_cast<std::byte*>(data)});
      }
      SS_RETURN_IF_ERROR(ReadBoxes(reader, stored, buffers, scratch));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ckpt::PartReceipt>> WritePartFromMemory(
    const std::string& directory, int64_t part,
    const std::vector<LogicalTensor>& tensors, std::span<const WriteItem> items,
    std::span<const Piece> pieces,
    absl::FunctionRef<const float*(const Piece&, int64_t role)> memory) {
  if (items.empty()) return std::nullopt;
  std::map<std::pair<int64_t, ckpt::Box>, const Piece*> by_box;
  for (const Piece& piece : pieces) {
    by_box[{piece.tensor, piece.box}] = &piece;
  }
  SS_ASSIGN_OR_RETURN(
      const std::unique_ptr<ckpt::PartWriter> writer,
      ckpt::PartWriter::Create(directory, part, FragmentSpecs(tensors, items)));
  for (size_t i = 0; i < items.size(); ++i) {
    const WriteItem& item = items[i];
    const Piece& piece = *by_box.at({item.tensor, item.box});
    SS_RETURN_IF_ERROR(writer->Append(
        static_cast<int64_t>(i),
        Bytes(memory(piece, item.role), ckpt::NumElements(item.box))));
  }
  return writer->Close();
}

absl::StatusOr<std::vector<ckpt::PartReceipt>> WriteParts(
    const std::string& directory, const std::vector<LogicalTensor>& tensors,
    std::span<const std::vector<WriteItem>> parts, int64_t buffer_bytes,
    ItemSource source) {
  std::vector<ckpt::PartReceipt> receipts;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].empty()) continue;
    SS_ASSIGN_OR_RETURN(ckpt::PartReceipt receipt,
                        WritePart(directory, static_cast<int64_t>(part),
                                  tensors, parts[part], buffer_bytes, source));
    receipts.push_back(std::move(receipt));
  }
  return receipts;
}

}  // namespace shardshift::reshard
