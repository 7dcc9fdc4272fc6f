// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_checkpoint.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/dcp_shards.h"
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

// Finds chunks in one file after the other.
class ChunkFinder {
 public:
  explicit ChunkFinder(SourceTensors& source) : source_(source) {}

  absl::StatusOr<SourceChunk> Find(const DcpTensor& tensor,
                                   const DcpChunk& chunk) {
    SS_RETURN_IF_ERROR(Open(chunk.place.file));
    SS_ASSIGN_OR_RETURN(const bool is_archive, IsArchive(chunk.place.range));
    return is_archive ? FindInArchive(tensor, chunk)
                      : FindInShard(tensor, chunk);
  }

 private:
  absl::Status Open(size_t number) {
    if (file_ != nullptr && number_ == number) return absl::OkStatus();
    SS_ASSIGN_OR_RETURN(ckpt::File file,
                        ckpt::File::OpenForRead(source_.files[number].path));
    file_ = std::make_unique<const ckpt::File>(std::move(file));
    number_ = number;
    shard_begin_.reset();
    shard_.clear();
    return absl::OkStatus();
  }

  // Of one of safetensors the ninth byte is a brace, in an archive a zero.
  absl::StatusOr<bool> IsArchive(const FileRange& range) const {
    constexpr int64_t kBrace = 8;
    std::byte byte = {};
    if (range.offset_bytes >= source_.files[number_].num_bytes - (kBrace + 1)) {
      return true;
    }
    SS_RETURN_IF_ERROR(
        file_->ReadAt(range.offset_bytes + kBrace, std::span(&byte, 1)));
    return byte != std::byte{'{'};
  }

  absl::StatusOr<SourceChunk> FindInArchive(const DcpTensor& tensor,
                                            const DcpChunk& chunk) {
    SS_ASSIGN_OR_RETURN(const TorchTensor found,
                        ResolveDcpChunk(*file_, tensor, chunk));
    source_.checks.push_back(CheckOf(file_->path(), found));
    absl::StatusOr<SourceChunk> placed =
        PlaceTensor(found, static_cast<int64_t>(number_));
    if (!placed.ok()) {
      return Annotate(placed.status(),
                      absl::StrCat(file_->path(), ": ", tensor.fqn));
    }
    placed->box = chunk.box;
    return placed;
  }

  // All chunks of a file have the place at which its shard begins, and lengths
  // of their own.
  absl::StatusOr<SourceChunk> FindInShard(const DcpTensor& tensor,
                                          const DcpChunk& chunk) {
    const FileRange& range = chunk.place.range;
    if (!shard_begin_.has_value()) {
      SS_ASSIGN_OR_RETURN(std::vector<ShardChunk> chunks,
                          ReadShardChunks(*file_, range.offset_bytes));
      for (ShardChunk& found : chunks) {
        std::string fqn = found.fqn;
        shard_.emplace(std::move(fqn), std::move(found));
      }
      shard_begin_ = range.offset_bytes;
    }
    if (*shard_begin_ != range.offset_bytes) {
      return absl::DataLossError(absl::StrCat(
          file_->path(), " would have a safetensors file at byte ",
          *shard_begin_, " and another at byte ", range.offset_bytes));
    }
    const auto found = shard_.find(tensor.fqn);
    if (found == shard_.end() || found->second.box != chunk.box) {
      return absl::DataLossError(absl::StrCat(
          file_->path(), " has no chunk ", tensor.fqn,
          ckpt::ToString(chunk.box),
          found == shard_.end()
              ? ", and none of that tensor"
              : absl::StrCat(", but ", ckpt::ToString(found->second.box),
                             ": of several chunks of a tensor PyTorch's "
                             "safetensors files keep the last")));
    }
    const int64_t num_bytes =
        ckpt::NumElements(chunk.box) * ckpt::ItemSize(tensor.dtype);
    if (found->second.dtype != tensor.dtype || range.num_bytes != num_bytes) {
      return absl::DataLossError(absl::StrCat(
          file_->path(), ": ", tensor.fqn, ckpt::ToString(chunk.box), " is of ",
          ckpt::Name(found->second.dtype), ", but by .metadata ",
          range.num_bytes, " bytes of ", ckpt::Name(tensor.dtype)));
    }
    return SourceChunk{chunk.box, static_cast<int64_t>(number_),
                       found->second.offset_bytes, 0};
  }

  SourceTensors& source_;
  std::unique_ptr<const ckpt::File> file_;
  size_t number_ = 0;
  std::optional<int64_t> shard_begin_;
  absl::flat_hash_map<std::string, ShardChunk> shard_;
};

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
  ChunkFinder finder(source);
  for (const ChunkRef& ref : ChunksByFile(metadata)) {
    const DcpTensor& tensor = metadata.tensors[ref.tensor];
    SS_ASSIGN_OR_RETURN(SourceChunk chunk,
                        finder.Find(tensor, tensor.chunks[ref.chunk]));
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

absl::StatusOr<DcpContents> ReadDcp(const std::string& directory) {
  DcpContents contents;
  SS_ASSIGN_OR_RETURN(const bool is_directory,
                      ckpt::Exists(ckpt::JoinPath(directory, ".")));
  if (!is_directory) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory,
        " is one file of a distributed checkpoint; name its folder"));
  }
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ckpt::ListDirectory(directory));
  const auto has_suffix = [](const std::string& name) {
    return absl::EndsWith(name, ".safetensors");
  };
  const bool has_metadata =
      std::find(names.begin(), names.end(), kDcpMetadataName) != names.end();
  if (has_metadata || std::none_of(names.begin(), names.end(), has_suffix)) {
    SS_ASSIGN_OR_RETURN(contents.metadata, ReadDcpMetadata(directory));
    SS_ASSIGN_OR_RETURN(contents.source,
                        ReadDcpTensors(directory, contents.metadata));
    return contents;
  }
  SS_ASSIGN_OR_RETURN(contents.source, ReadShardDirectory(directory));
  contents.notes.push_back(absl::StrCat(
      "without a .metadata nothing tells whether the shards of a rank are "
      "missing at the end; there are ",
      contents.source.files.size(), " files"));
  return contents;
}

absl::StatusOr<nlohmann::json> ReadDcpObjects(
    const DcpContents& contents, std::vector<std::string>& left_out) {
  nlohmann::json objects = nlohmann::json::object();
  int64_t total_bytes = 0;
  for (const DcpBytes& object : contents.metadata.bytes) {
    const FileRange& range = object.place.range;
    total_bytes += std::min(range.num_bytes, kMaxAllObjectBytes);
    if (range.num_bytes > kMaxObjectBytes || total_bytes > kMaxAllObjectBytes) {
      left_out.push_back(absl::StrCat("object ", absl::CHexEscape(object.key),
                                      " of ", range.num_bytes, " bytes"));
      continue;
    }
    SS_ASSIGN_OR_RETURN(
        const ckpt::File file,
        ckpt::File::OpenForRead(contents.source.files[object.place.file].path));
    SS_ASSIGN_OR_RETURN(const std::string bytes, ReadRange(file, range));
    objects[absl::CHexEscape(object.key)] = absl::Base64Escape(bytes);
  }
  return objects;
}

absl::StatusOr<ForeignCheckpoint> ReadGenericDcp(const std::string& directory,
                                                 int64_t step) {
  SS_ASSIGN_OR_RETURN(DcpContents contents, ReadDcp(directory));
  ForeignCheckpoint result;
  SS_ASSIGN_OR_RETURN(nlohmann::json objects,
                      ReadDcpObjects(contents, result.left_out));
  const nlohmann::json state = {
      {"generic", {{"format", "dcp"}, {"objects", std::move(objects)}}}};
  SS_ASSIGN_OR_RETURN(result.files, GenericFiles(directory, contents.source,
                                                 step, StateText(state), "{}"));
  result.checks = std::move(contents.source.checks);
  result.notes = std::move(contents.notes);
  return result;
}

}  // namespace shardshift::reshard
