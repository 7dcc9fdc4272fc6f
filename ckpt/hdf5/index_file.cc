// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/index_file.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/hdf5/file_builder.h"

namespace shardshift::ckpt {
namespace {

std::string TensorDataset(const Tensor& tensor) {
  return absl::StrCat("/tensors/", tensor.name, "/", tensor.role);
}

// Adds the tensors, whose fragments follow each other in the table.
absl::Status AddTensors(FileBuilder& builder, const Table& table,
                        const std::map<int64_t, std::string>& scalars) {
  auto fragment = table.fragments.begin();
  for (size_t t = 0; t < table.tensors.size(); ++t) {
    const Tensor& tensor = table.tensors[t];
    const std::string dataset = TensorDataset(tensor);
    std::vector<ViewSource> sources;
    for (; fragment != table.fragments.end() &&
           fragment->tensor == static_cast<int64_t>(t);
         ++fragment) {
      sources.push_back({PartFileName(fragment->part),
                         FragmentDataset(tensor, fragment->box),
                         FragmentDatasetShape(*fragment), fragment->box});
    }
    if (tensor.shape.empty()) {
      SS_RETURN_IF_ERROR(
          builder.AddTensor(dataset, tensor.dtype, tensor.shape,
                            AsBytes(scalars.at(static_cast<int64_t>(t)))));
    } else if (NumElements(tensor.shape) == 0) {
      SS_RETURN_IF_ERROR(
          builder.AddTensor(dataset, tensor.dtype, tensor.shape, {}));
    } else {
      SS_RETURN_IF_ERROR(
          builder.AddView(dataset, tensor.dtype, tensor.shape, sources));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileLayout> LayOutIndexFile(
    const std::string& path, const Table& table,
    const std::map<int64_t, std::string>& scalars,
    int64_t max_viewed_fragments) {
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<FileBuilder> builder,
                      FileBuilder::Create(path));
  if (static_cast<int64_t>(table.fragments.size()) <= max_viewed_fragments) {
    SS_RETURN_IF_ERROR(AddTensors(*builder, table, scalars));
  }
  SS_RETURN_IF_ERROR(builder->AddText("/state", table.state));
  SS_RETURN_IF_ERROR(builder->AddText("/record", table.record));
  FileLayout layout;
  const auto table_bytes = static_cast<int64_t>(EncodeTable(table).size());
  SS_ASSIGN_OR_RETURN(layout.table_offset_bytes,
                      builder->AddBytes(kTableDataset, table_bytes));
  SS_ASSIGN_OR_RETURN(layout.image, builder->Finish());
  return layout;
}

}  // namespace shardshift::ckpt
