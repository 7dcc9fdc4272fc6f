// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_checkpoint.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/generic.h"

namespace shardshift::reshard {
namespace {

// Of an object that is no tensor: small things, or else left out.
constexpr int64_t kMaxObjectBytes = int64_t{4} << 20;
constexpr int64_t kMaxAllObjectBytes = int64_t{16} << 20;

absl::StatusOr<std::vector<SourceFile>> FilesOf(const std::string& directory,
                                                const DcpMetadata& metadata) {
  std::vector<SourceFile> files;
  files.reserve(metadata.files.size());
  for (const std::string& name : metadata.files) {
    std::string path = ckpt::JoinPath(directory, name);
    absl::StatusOr<ckpt::File> file = ckpt::File::OpenForRead(path);
    if (absl::IsNotFound(file.status())) {
      return absl::DataLossError(
          absl::StrCat(path, " is missing, but .metadata lists it"));
    }
    SS_RETURN_IF_ERROR(file.status());
    SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file->Size());
    files.push_back({std::move(path), num_bytes});
  }
  return files;
}

// The chunks of all tensors, by file: each file is opened once.
struct ChunkRef {
  size_t file = 0;
  size_t tensor = 0;
  size_t chunk = 0;
};

std::vector<ChunkRef> ChunksByFile(const DcpMetadata& metadata) {
  std::vector<ChunkRef> refs;
  for (size_t t = 0; t < metadata.tensors.size(); ++t) {
    const std::vector<DcpChunk>& chunks = metadata.tensors[t].chunks;
    for (size_t c = 0; c < chunks.size(); ++c) {
      refs.push_back({chunks[c].place.file, t, c});
    }
  }
  std::stable_sort(
      refs.begin(), refs.end(),
      [](const ChunkRef& a, const ChunkRef& b) { return a.file < b.file; });
  return refs;
}

absl::StatusOr<SourceChunk> PlaceChunk(const ckpt::File& file,
                                       const DcpTensor& tensor,
                                       const DcpChunk& chunk,
                                       std::vector<StorageCheck>& checks) {
  SS_ASSIGN_OR_RETURN(const TorchTensor found,
                      ResolveDcpChunk(file, tensor, chunk));
  checks.push_back(CheckOf(file.path(), found));
  absl::StatusOr<SourceChunk> placed =
      PlaceTensor(found, static_cast<int64_t>(chunk.place.file));
  if (!placed.ok()) {
    return Annotate(placed.status(),
                    absl::StrCat(file.path(), ": ", tensor.fqn));
  }
  placed->box = chunk.box;
  return placed;
}

// By key, base64. What is too large is named in `left_out`.
absl::StatusOr<nlohmann::json> ReadObjects(const DcpMetadata& metadata,
                                           const std::vector<SourceFile>& files,
                                           std::vector<std::string>& left_out) {
  nlohmann::json objects = nlohmann::json::object();
  int64_t total_bytes = 0;
  for (const DcpBytes& object : metadata.bytes) {
    const FileRange& range = object.place.range;
    total_bytes += std::min(range.num_bytes, kMaxAllObjectBytes);
    if (range.num_bytes > kMaxObjectBytes || total_bytes > kMaxAllObjectBytes) {
      left_out.push_back(absl::StrCat("object ", absl::CHexEscape(object.key),
                                      " of ", range.num_bytes, " bytes"));
      continue;
    }
    SS_ASSIGN_OR_RETURN(const ckpt::File file,
                        ckpt::File::OpenForRead(files[object.place.file].path));
    SS_ASSIGN_OR_RETURN(const std::string bytes, ReadRange(file, range));
    objects[absl::CHexEscape(object.key)] = absl::Base64Escape(bytes);
  }
  return objects;
}

}  // namespace

absl::StatusOr<SourceTensors> ReadDcpTensors(const std::string& directory,
                                             const DcpMetadata& metadata) {
  SourceTensors source;
  SS_ASSIGN_OR_RETURN(source.files, FilesOf(directory, metadata));
  source.tensors.resize(metadata.tensors.size());
  for (size_t t = 0; t < metadata.tensors.size(); ++t) {
    const DcpTensor& tensor = metadata.tensors[t];
    source.tensors[t].key = tensor.fqn;
    source.tensors[t].dtype = tensor.dtype;
    source.tensors[t].shape = tensor.shape;
  }
  std::unique_ptr<const ckpt::File> file;
  size_t open_file = 0;
  for (const ChunkRef& ref : ChunksByFile(metadata)) {
    if (file == nullptr || open_file != ref.file) {
      SS_ASSIGN_OR_RETURN(ckpt::File opened,
                          ckpt::File::OpenForRead(source.files[ref.file].path));
      file = std::make_unique<const ckpt::File>(std::move(opened));
      open_file = ref.file;
    }
    const DcpTensor& tensor = metadata.tensors[ref.tensor];
    SS_ASSIGN_OR_RETURN(
        SourceChunk chunk,
        PlaceChunk(*file, tensor, tensor.chunks[ref.chunk], source.checks));
    source.tensors[ref.tensor].chunks.push_back(std::move(chunk));
  }
  for (SourceTensor& tensor : source.tensors) {
    // An empty tensor needs a place, and any will do.
    if (tensor.chunks.empty()) {
      if (source.files.empty()) {
        return absl::DataLossError(
            absl::StrCat(directory, " has no data files"));
      }
      tensor.chunks.push_back({ckpt::WholeBox(tensor.shape), 0, 0, 0});
    }
  }
  return source;
}

absl::StatusOr<ForeignCheckpoint> ReadGenericDcp(const std::string& directory,
                                                 int64_t step) {
  SS_ASSIGN_OR_RETURN(const DcpMetadata metadata, ReadDcpMetadata(directory));
  SS_ASSIGN_OR_RETURN(SourceTensors source,
                      ReadDcpTensors(directory, metadata));
  ForeignCheckpoint result;
  result.checks = std::move(source.checks);
  SS_ASSIGN_OR_RETURN(nlohmann::json objects,
                      ReadObjects(metadata, source.files, result.left_out));
  const nlohmann::json state = {
      {"generic", {{"format", "dcp"}, {"objects", std::move(objects)}}}};
  SS_ASSIGN_OR_RETURN(result.files, GenericFiles(directory, source, step,
                                                 StateText(state), "{}"));
  return result;
}

}  // namespace shardshift::reshard
