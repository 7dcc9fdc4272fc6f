// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_shards.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/json_text.h"
#include "reshard/plan/plan.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr char kInfoKey[] = "DCP_SHARDING_INFO";
constexpr char kVersionKey[] = "DCP_VERSION";
constexpr char kVersion[] = "1.0";
constexpr char kOffsetsKey[] = "saved_offsets";
constexpr char kSuffix[] = ".safetensors";
constexpr size_t kNumberDigits = 5;

absl::Status CheckVersion(const SafetensorsHeader& header) {
  const auto found = header.metadata.find(kVersionKey);
  if (found == header.metadata.end()) {
    return absl::DataLossError(absl::StrCat("its __metadata__ has ", kInfoKey,
                                            " but no ", kVersionKey));
  }
  if (found->second == kVersion) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      kVersionKey, " is ", Quoted(found->second), ", expected ", kVersion));
}

// Where the chunk of one tensor begins. Each offset and the end of the chunk
// fit 64 bits.
absl::StatusOr<ckpt::Shape> OffsetsOf(const json& info,
                                      const ckpt::Shape& extent) {
  const auto offsets = info.is_object() ? info.find(kOffsetsKey) : info.end();
  if (offsets == info.end() || !offsets->is_array()) {
    return absl::DataLossError(absl::StrCat("has no list ", kOffsetsKey));
  }
  if (offsets->size() != extent.size()) {
    return absl::DataLossError(
        absl::StrCat(kOffsetsKey, " has ", offsets->size(),
                     " numbers, but the chunk is ", ckpt::ToString(extent)));
  }
  ckpt::Shape start;
  for (size_t d = 0; d < extent.size(); ++d) {
    const json& offset = (*offsets)[d];
    int64_t end = 0;
    if (!offset.is_number_unsigned() ||
        __builtin_add_overflow(offset.get<uint64_t>(), extent[d], &end)) {
      return absl::DataLossError(absl::StrCat(
          kOffsetsKey, " holds ", Quoted(offset.dump()),
          ", expected a number of 0 or more, as far as 64 bits go"));
    }
    start.push_back(offset.get<int64_t>());
  }
  return start;
}

// "00042"; nullopt for anything else.
std::optional<int64_t> NumberAtFront(absl::string_view& text) {
  const absl::string_view digits = text.substr(0, text.find_first_of("-."));
  int64_t number = 0;
  if (digits.size() < kNumberDigits ||
      !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &number)) {
    return std::nullopt;
  }
  text.remove_prefix(digits.size());
  return number;
}

struct ShardName {
  int64_t rank = 0;
  int64_t file = 0;
  int64_t num_files = 0;
};

std::optional<ShardName> ParseShardName(absl::string_view name) {
  ShardName result;
  for (const auto& [word, number] :
       {std::pair{"shard-", &result.rank}, std::pair{"-model-", &result.file},
        std::pair{"-of-", &result.num_files}}) {
    if (!absl::ConsumePrefix(&name, word)) return std::nullopt;
    const std::optional<int64_t> found = NumberAtFront(name);
    if (!found.has_value()) return std::nullopt;
    *number = *found;
  }
  return name == kSuffix ? std::optional(result) : std::nullopt;
}

// Each rank has its parts of the files 1 to N, where it has any.
absl::Status CheckFiles(const std::vector<std::string>& names) {
  std::set<int64_t> seen;
  int64_t num_files = 0;
  for (const std::string& name : names) {
    const std::optional<ShardName> shard = ParseShardName(name);
    if (!shard.has_value()) continue;
    if (num_files != 0 && shard->num_files != num_files) {
      return absl::DataLossError(
          absl::StrCat(name, " is of a checkpoint of ", shard->num_files,
                       " files, but others are of one of ", num_files));
    }
    num_files = shard->num_files;
    seen.insert(shard->file);
  }
  int64_t next = 1;
  for (const int64_t file : seen) {
    if (file != next) break;
    ++next;
  }
  if (next > num_files) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("there is no shard of file ", next,
                                          " of ", num_files,
                                          "; get it, it belongs to them"));
}

bool IsEmpty(const ckpt::Box& box) { return ckpt::NumElements(box) == 0; }

// Chunks of one tensor.
class Joiner {
 public:
  absl::Status Add(const ShardChunk& chunk, int64_t file) {
    if (tensor_.chunks.empty()) {
      tensor_ = {chunk.fqn, chunk.dtype, chunk.box.extent, {}};
    }
    if (chunk.dtype != tensor_.dtype ||
        chunk.box.extent.size() != tensor_.shape.size()) {
      return absl::DataLossError(absl::StrCat(
          "is in one file ", ckpt::Name(tensor_.dtype), " of ",
          tensor_.shape.size(), " dimensions, in another ",
          ckpt::Name(chunk.dtype), " of ", chunk.box.extent.size()));
    }
    for (size_t d = 0; d < tensor_.shape.size(); ++d) {
      tensor_.shape[d] =
          std::max(tensor_.shape[d], chunk.box.start[d] + chunk.box.extent[d]);
    }
    tensor_.chunks.push_back({chunk.box, file, chunk.offset_bytes, 0});
    return absl::OkStatus();
  }

  absl::StatusOr<SourceTensor> Join() && {
    SS_ASSIGN_OR_RETURN(const int64_t num_elements,
                        ckpt::CheckedNumElements(tensor_.shape));
    if (num_elements == 0) {
      tensor_.chunks.resize(1);
      tensor_.chunks[0].box = ckpt::WholeBox(tensor_.shape);
      return std::move(tensor_);
    }
    std::erase_if(tensor_.chunks,
                  [](const SourceChunk& chunk) { return IsEmpty(chunk.box); });
    std::vector<ckpt::Box> boxes;
    boxes.reserve(tensor_.chunks.size());
    for (const SourceChunk& chunk : tensor_.chunks) boxes.push_back(chunk.box);
    const ckpt::Box whole = ckpt::WholeBox(tensor_.shape);
    SS_RETURN_IF_ERROR(PlanCopies(boxes, std::span(&whole, 1)).status());
    return std::move(tensor_);
  }

 private:
  SourceTensor tensor_;
};

}  // namespace

absl::StatusOr<std::vector<ShardChunk>> ParseShardChunks(
    const SafetensorsHeader& header) {
  const auto text = header.metadata.find(kInfoKey);
  if (text == header.metadata.end()) {
    return absl::DataLossError(absl::StrCat(
        "its __metadata__ has no ", kInfoKey,
        "; --from safetensors reads files whose tensors are whole"));
  }
  SS_RETURN_IF_ERROR(CheckVersion(header));
  absl::StatusOr<json> info = ParseStrictJson(text->second);
  if (!info.ok()) {
    return absl::DataLossError(
        absl::StrCat(kInfoKey, ": ", info.status().message()));
  }
  if (!info->is_object() || info->size() != header.tensors.size()) {
    return absl::DataLossError(
        absl::StrCat(kInfoKey, " has ", info->is_object() ? info->size() : 0,
                     " tensors, but the file has ", header.tensors.size()));
  }
  std::vector<ShardChunk> chunks;
  chunks.reserve(header.tensors.size());
  for (const SafetensorsTensor& tensor : header.tensors) {
    const std::string where = absl::StrCat(kInfoKey, ": ", Quoted(tensor.name));
    const auto found = info->find(tensor.name);
    if (found == info->end()) {
      return absl::DataLossError(absl::StrCat(where, " is not there"));
    }
    absl::StatusOr<ckpt::Shape> start = OffsetsOf(*found, tensor.shape);
    if (!start.ok()) return Annotate(start.status(), where);
    chunks.push_back({tensor.name,
                      {*std::move(start), tensor.shape},
                      tensor.begin,
                      tensor.dtype});
  }
  return chunks;
}

absl::StatusOr<std::vector<ShardChunk>> ReadShardChunks(const ckpt::File& file,
                                                        int64_t begin) {
  SS_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                      ReadSafetensorsHeader(file, begin));
  auto chunks = ParseShardChunks(header);
  if (!chunks.ok()) return Annotate(chunks.status(), file.path());
  return chunks;
}

absl::StatusOr<std::vector<SourceTensor>> JoinShardChunks(
    const std::vector<std::vector<ShardChunk>>& chunks) {
  std::map<absl::string_view, Joiner> joiners;
  for (size_t file = 0; file < chunks.size(); ++file) {
    for (const ShardChunk& chunk : chunks[file]) {
      SS_RETURN_IF_ERROR(
          Annotate(joiners[chunk.fqn].Add(chunk, static_cast<int64_t>(file)),
                   Quoted(chunk.fqn)));
    }
  }
  std::vector<SourceTensor> tensors;
  tensors.reserve(joiners.size());
  for (auto& [fqn, joiner] : joiners) {
    absl::StatusOr<SourceTensor> tensor = std::move(joiner).Join();
    if (!tensor.ok()) {
      return absl::DataLossError(absl::StrCat(
          Quoted(fqn),
          " has chunks that do not make it up: ", tensor.status().message()));
    }
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

bool IsShardName(absl::string_view name) {
  return ParseShardName(name).has_value();
}

absl::StatusOr<SourceTensors> ReadShardDirectory(const std::string& directory) {
  SS_ASSIGN_OR_RETURN(std::vector<std::string> names,
                      ckpt::ListDirectory(directory));
  std::erase_if(names, [](const std::string& name) {
    return !absl::EndsWith(name, kSuffix);
  });
  if (names.empty()) {
    return absl::NotFoundError(
        absl::StrCat(directory, " has no safetensors files"));
  }
  SS_RETURN_IF_ERROR(Annotate(CheckFiles(names), directory));
  SourceTensors source;
  std::vector<std::vector<ShardChunk>> chunks;
  for (const std::string& name : names) {
    const std::string path = ckpt::JoinPath(directory, name);
    SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
    SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
    source.files.push_back({path, num_bytes});
    SS_ASSIGN_OR_RETURN(std::vector<ShardChunk> found, ReadShardChunks(file));
    chunks.push_back(std::move(found));
  }
  absl::StatusOr<std::vector<SourceTensor>> tensors = JoinShardChunks(chunks);
  if (!tensors.ok()) return Annotate(tensors.status(), directory);
  source.tensors = *std::move(tensors);
  return source;
}

}  // namespace shardshift::reshard
