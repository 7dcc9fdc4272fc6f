// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/part_file.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/hdf5/file_builder.h"

namespace shardshift::ckpt {
namespace {

// The blocks of a fragment without a codec follow each other.
void PlaceBlocks(int64_t offset_bytes, int64_t num_bytes, Fragment& fragment) {
  for (Block& block : fragment.blocks) {
    block.offset_bytes = offset_bytes;
    block.stored_bytes = std::min(kBlockBytes, num_bytes);
    offset_bytes += block.stored_bytes;
    num_bytes -= block.stored_bytes;
  }
}

}  // namespace

std::string FragmentDataset(const Tensor& tensor, const Box& box) {
  const std::string place =
      box.start.empty() ? "scalar" : absl::StrJoin(box.start, "_");
  return absl::StrCat("/fragments/", tensor.name, " ", tensor.role, " ", place);
}

absl::StatusOr<FileLayout> LayOutPartFile(const std::string& path,
                                          std::span<const int64_t> order,
                                          Table& table) {
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<FileBuilder> builder,
                      FileBuilder::Create(path));
  for (const int64_t index : order) {
    Fragment& fragment = table.fragments[index];
    const Tensor& tensor = table.tensors[fragment.tensor];
    SS_ASSIGN_OR_RETURN(
        const int64_t offset_bytes,
        builder->AddFragment(FragmentDataset(tensor, fragment.box),
                             {tensor.name, tensor.role, tensor.dtype,
                              tensor.shape, fragment.box.start},
                             fragment.box.extent));
    PlaceBlocks(offset_bytes, FragmentBytes(table, fragment), fragment);
  }
  FileLayout layout;
  // Numbers are of fixed width, so checksums do not change the size.
  const auto table_bytes = static_cast<int64_t>(EncodeTable(table).size());
  SS_ASSIGN_OR_RETURN(layout.table_offset_bytes,
                      builder->AddBytes(kTableDataset, table_bytes));
  SS_ASSIGN_OR_RETURN(layout.image, builder->Finish());
  return layout;
}

}  // namespace shardshift::ckpt
