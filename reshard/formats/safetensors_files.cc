// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/safetensors_files.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/safetensors.h"

namespace shardshift::reshard {

absl::Status AddSafetensorsFile(const std::string& path,
                                SourceTensors& source) {
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(SafetensorsHeader header, ReadSafetensorsHeader(file));
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  const auto number = std::ssize(source.files);
  source.files.push_back({path, num_bytes});
  for (SafetensorsTensor& tensor : header.tensors) {
    SourceTensor added;
    added.key = std::move(tensor.name);
    added.dtype = tensor.dtype;
    added.shape = std::move(tensor.shape);
    added.chunks.push_back(
        {ckpt::WholeBox(added.shape), number, tensor.begin, 0});
    source.tensors.push_back(std::move(added));
  }
  return absl::OkStatus();
}

absl::StatusOr<ckpt::ForeignFile> LayOutSafetensorsFile(
    const std::string& name, const std::vector<SafetensorsEntry>& entries,
    const std::vector<LogicalTensor>& tensors) {
  SafetensorsHeader header;
  // What the loaders of Hugging Face ask for.
  header.metadata["format"] = "pt";
  absl::flat_hash_map<absl::string_view, const SafetensorsEntry*> by_name;
  for (const SafetensorsEntry& entry : entries) {
    by_name[entry.stored.name] = &entry;
    SafetensorsTensor tensor;
    tensor.name = entry.stored.name;
    tensor.shape = entry.stored.shape;
    tensor.dtype = entry.dtype;
    header.tensors.push_back(std::move(tensor));
  }
  SS_ASSIGN_OR_RETURN(SafetensorsLayout layout,
                      LayOutSafetensors(std::move(header)));
  ckpt::ForeignFile file;
  file.name = name;
  file.file_bytes = layout.file_bytes;
  file.fixed.push_back({0, std::move(layout.header_bytes)});
  for (const SafetensorsTensor& tensor : layout.header.tensors) {
    const SafetensorsEntry& entry = *by_name[tensor.name];
    for (const Piece& piece : entry.stored.pieces) {
      const LogicalTensor& logical = tensors[piece.tensor];
      ckpt::ForeignPlace place =
          PlaceInFile(entry.stored, piece, ckpt::ItemSize(entry.dtype));
      place.offset_bytes += tensor.begin;
      file.specs.push_back(
          {logical.name, entry.role, entry.dtype, logical.shape, piece.box});
      file.places.push_back(place);
    }
  }
  return file;
}

}  // namespace shardshift::reshard
