// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/part_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {
std::string FragmentDataset(const Tensor& tensor, const Box& box) {
  const std::string place =
      box.start.empty() ? "scalar" : absl::StrJoin(box.start, "_");
  return absl::StrCat("/fragments/", tensor.name, " ", tensor.role, " ", place);
}

Shape FragmentDatasetShape(const Fragment& fragment) {
  if (fragment.codec == Codec::kNone) return fragment.box.extent;
  return {NumElements(fragment.box)};
}

absl::StatusOr<PartLayout> PartLayout::Create(const std::string& path,
                                              std::span<const int64_t> order,
                                              Table& table) {
  SS_ASSIGN_OR_RETURN(std::unique_ptr<FileBuilder> builder,
                      FileBuilder::Create(path));
  PartLayout layout(std::move(builder));
  for (const int64_t index : order) {
    SS_RETURN_IF_ERROR(layout.AddFragment(table, table.fragments[index]));
  }
  return layout;
}

absl::Status PartLayout::AddFragment(const Table& table, Fragment& fragment) {
  const Tensor& tensor = table.tensors[fragment.tensor];
  const std::string dataset = FragmentDataset(tensor, fragment.box);
  const FragmentLabel label = {tensor.name, tensor.role, tensor.dtype,
                               tensor.shape, fragment.box.start};
  if (fragment.codec != Codec::kNone) {
    return builder_->AddCompressedFragment(
        dataset, label, fragment.box.extent,
        ChunkBytes(table, fragment) / ItemSize(tensor.dtype));
  }
  SS_ASSIGN_OR_RETURN(
      const int64_t offset_bytes,
      builder_->AddFragment(dataset, label, fragment.box.extent));
  PlaceBlocks(offset_bytes, FragmentBytes(table, fragment), fragment);
  return absl::OkStatus();
}

absl::Status PartLayout::PlaceBlock(const Table& table, Fragment& fragment,
                                    int64_t block,
                                    std::span<const std::byte> stored) {
  const Tensor& tensor = table.tensors[fragment.tensor];
  const int64_t first_element = block * kBlockBytes / ItemSize(tensor.dtype);
  SS_ASSIGN_OR_RETURN(fragment.blocks[block].offset_bytes,
                      builder_->AddChunk(FragmentDataset(tensor, fragment.box),
                                         first_element, stored));
  fragment.blocks[block].stored_bytes = static_cast<int64_t>(stored.size());
  return absl::OkStatus();
}

absl::StatusOr<FileLayout> PartLayout::Finish(int64_t table_bytes) {
  FileLayout layout;
  SS_ASSIGN_OR_RETURN(layout.table_offset_bytes,
                      builder_->AddBytes(kTableDataset, table_bytes));
  SS_ASSIGN_OR_RETURN(layout.image, builder_->Finish());
  return layout;
}

}  // namespace shardshift::ckpt
