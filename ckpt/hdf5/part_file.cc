// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/part_file.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/hdf5/file_builder.h"

namespace shardshift::ckpt {

std::string FragmentDataset(const Tensor& tensor, const Box& box) {
  const std::string place =
      box.start.empty() ? "scalar" : absl::StrJoin(box.start, "_");
  return absl::StrCat("/fragments/", tensor.name, "/", tensor.role, "/", place);
}

absl::StatusOr<FileLayout> CreatePartFile(const std::string& path,
                                          std::span<const int64_t> order,
                                          Table& table) {
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<FileBuilder> builder,
                      FileBuilder::Create(path));
  for (const int64_t index : order) {
    Fragment& fragment = table.fragments[index];
    const Tensor& tensor = table.tensors[fragment.tensor];
    SS_ASSIGN_OR_RETURN(
        fragment.offset_bytes,
        builder->AddFragment(FragmentDataset(tensor, fragment.box),
                             {tensor.name, tensor.role, tensor.dtype,
                              tensor.shape, fragment.box.start},
                             fragment.box.extent));
  }
  FileLayout layout;
  // Numbers are of fixed width, so checksums do not change the size.
  const auto table_bytes = static_cast<int64_t>(EncodeTable(table).size());
  SS_ASSIGN_OR_RETURN(layout.table_offset_bytes,
                      builder->AddBytes(kTableDataset, table_bytes));
  SS_ASSIGN_OR_RETURN(layout.file_bytes, builder->Close());
  return layout;
}

}  // namespace shardshift::ckpt
