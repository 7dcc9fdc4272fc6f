// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr char kWeightMapKey[] = "weight_map";

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  if (num_bytes > kMaxHfJsonBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has ", num_bytes, " bytes, expected at most ",
                     kMaxHfJsonBytes));
  }
  std::string text(num_bytes, '\0');
  SS_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

// Refuses what could lead out of the folder.
absl::Status CheckFileName(absl::string_view name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
  });
  if (printable && !name.empty() && name != "." && name != ".." &&
      !absl::StrContains(name, '/') && !absl::StrContains(name, '\\')) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(Quoted(name), " is not the name of a file in the folder"));
}

absl::Status NoWeights(const std::string& directory,
                       const std::vector<std::string>& names) {
  std::vector<std::string> safetensors;
  std::vector<std::string> others;
  for (const std::string& name : names) {
    if (absl::EndsWith(name, ".safetensors")) {
      safetensors.push_back(name);
    } else if (IsPickledHfName(name) || absl::EndsWith(name, ".gguf") ||
               absl::EndsWith(name, ".pth")) {
      others.push_back(name);
    }
  }
  if (safetensors.empty() && !others.empty() && IsPickledHfName(others[0])) {
    return absl::UnimplementedError(absl::StrCat(
        directory, " has its weights in ", others[0],
        ", Hugging Face's older format: pickles, which are not read. Save it "
        "with safetensors, in Python: AutoModelForCausalLM.from_pretrained(\"",
        directory, "\").save_pretrained(\"NEW\", safe_serialization=True)"));
  }
  std::string message = absl::StrCat(directory, " has no ", kHfWeightsName,
                                     " and no ", kHfIndexName);
  if (safetensors.size() > 1) {
    absl::StrAppend(&message, ", but ", absl::StrJoin(safetensors, ", "),
                    "; get the index, which belongs to the model");
  } else if (safetensors.size() == 1) {
    absl::StrAppend(&message, ", but ", safetensors[0],
                    "; rename it if it holds the whole model");
  } else if (!others.empty()) {
    absl::StrAppend(&message, ", but ", absl::StrJoin(others, ", "),
                    "; save the model with safe_serialization");
  }
  return absl::NotFoundError(message);
}

// All tensors of one file.
class FileTensors {
 public:
  static absl::StatusOr<FileTensors> Read(const std::string& directory,
                                          const std::string& name) {
    FileTensors result;
    SS_ASSIGN_OR_RETURN(
        const ckpt::File file,
        ckpt::File::OpenForRead(ckpt::JoinPath(directory, name)));
    SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
    result.file_ = {.name = name, .num_bytes = num_bytes};
    SS_ASSIGN_OR_RETURN(result.header_, ReadSafetensorsHeader(file));
    return result;
  }

  const HfFile& file() const { return file_; }
  SafetensorsHeader& header() { return header_; }

 private:
  HfFile file_;
  SafetensorsHeader header_;
};

absl::StatusOr<HfFolder> ReadSingle(const std::string& directory) {
  SS_ASSIGN_OR_RETURN(FileTensors file,
                      FileTensors::Read(directory, kHfWeightsName));
  HfFolder folder{.directory = directory,
                  .files = {file.file()},
                  .tensors = {},
                  .unlisted = {},
                  .metadata = std::move(file.header().metadata)};
  folder.tensors.reserve(file.header().tensors.size());
  for (SafetensorsTensor& tensor : file.header().tensors) {
    folder.tensors.push_back({.file = 0, .tensor = std::move(tensor)});
  }
  return folder;
}

// Takes from a file the tensors that the index has there.
// `places` are those of the file, ascending by tensor.
absl::Status TakeFile(const std::string& directory,
                      std::span<const HfPlace> places, HfFolder& folder) {
  const std::string& name = places.front().file;
  absl::StatusOr<FileTensors> file = FileTensors::Read(directory, name);
  if (absl::IsNotFound(file.status())) {
    return absl::DataLossError(absl::StrCat(
        name, ", where ", Quoted(places.front().tensor),
        " should be, is missing; get the file, it belongs to the model"));
  }
  SS_RETURN_IF_ERROR(file.status());
  if (folder.files.empty()) {
    folder.metadata = std::move(file->header().metadata);
  }
  const auto number = static_cast<int64_t>(folder.files.size());
  folder.files.push_back(file->file());
  std::vector<SafetensorsTensor>& tensors = file->header().tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  auto place = places.begin();
  for (SafetensorsTensor& tensor : tensors) {
    if (place == places.end() || tensor.name < place->tensor) {
      folder.unlisted.push_back(absl::StrCat(name, ": ", Quoted(tensor.name)));
      continue;
    }
    if (tensor.name > place->tensor) break;
    folder.tensors.push_back({.file = number, .tensor = std::move(tensor)});
    ++place;
  }
  if (place == places.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("tensor ", Quoted(place->tensor),
                                          " should be in ", name,
                                          ", which does not have it"));
}

absl::StatusOr<HfFolder> ReadSharded(const std::string& directory,
                                     const std::string& index_text) {
  SS_ASSIGN_OR_RETURN(std::vector<HfPlace> places, ParseHfIndex(index_text));
  std::stable_sort(
      places.begin(), places.end(),
      [](const HfPlace& a, const HfPlace& b) { return a.file < b.file; });
  HfFolder folder;
  folder.directory = directory;
  folder.tensors.reserve(places.size());
  for (auto first = places.begin(); first != places.end();) {
    const auto last = std::find_if(
        first, places.end(),
        [first](const HfPlace& place) { return place.file != first->file; });
    SS_RETURN_IF_ERROR(TakeFile(directory, {first, last}, folder));
    first = last;
  }
  return folder;
}

}  // namespace

bool IsPickledHfName(absl::string_view name) {
  return absl::StartsWith(name, "pytorch_model") &&
         (absl::EndsWith(name, ".bin") ||
          absl::EndsWith(name, ".bin.index.json"));
}

absl::StatusOr<HfFolder> ReadHfFolder(const std::string& directory) {
  SS_ASSIGN_OR_RETURN(const auto names, ckpt::ListDirectory(directory));
  const bool single =
      std::binary_search(names.begin(), names.end(), kHfWeightsName);
  const bool sharded =
      std::binary_search(names.begin(), names.end(), kHfIndexName);
  if (single && sharded) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " has both ", kHfWeightsName, " and ",
                     kHfIndexName, "; move the one away that is not meant"));
  }
  if (!single && !sharded) return NoWeights(directory, names);
  absl::StatusOr<HfFolder> folder;
  if (single) {
    folder = ReadSingle(directory);
  } else {
    const std::string path = ckpt::JoinPath(directory, kHfIndexName);
    SS_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path));
    folder = ReadSharded(directory, text);
    if (!folder.ok()) return Annotate(folder.status(), path);
  }
  SS_RETURN_IF_ERROR(folder.status());
  std::sort(folder->tensors.begin(), folder->tensors.end(),
            [](const HfTensor& a, const HfTensor& b) {
              return a.tensor.name < b.tensor.name;
            });
  return folder;
}

absl::StatusOr<std::optional<std::string>> ReadHfConfigText(
    const std::string& directory) {
  absl::StatusOr<std::string> text =
      ReadSmallFile(ckpt::JoinPath(directory, kHfConfigName));
  if (absl::IsNotFound(text.status())) return std::nullopt;
  SS_RETURN_IF_ERROR(text.status());
  return *std::move(text);
}

absl::StatusOr<std::vector<HfPlace>> ParseHfIndex(absl::string_view text) {
  SS_ASSIGN_OR_RETURN(const json index, ParseStrictJson(text));
  const auto map = index.is_object() ? index.find(kWeightMapKey) : index.end();
  if (map == index.end() || !map->is_object()) {
    return absl::DataLossError(
        absl::StrCat("there is no object \"", kWeightMapKey, "\""));
  }
  if (map->empty()) {
    return absl::DataLossError(
        absl::StrCat("\"", kWeightMapKey, "\" names no tensor"));
  }
  std::vector<HfPlace> places;
  places.reserve(map->size());
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return absl::DataLossError(absl::StrCat("\"", kWeightMapKey,
                                              "\": ", Quoted(tensor),
                                              " is not mapped to a string"));
    }
    SS_RETURN_IF_ERROR(
        Annotate(CheckFileName(file.get_ref<const std::string&>()),
                 absl::StrCat("\"", kWeightMapKey, "\": ", Quoted(tensor))));
    places.push_back({tensor, file.get<std::string>()});
  }
  return places;
}

std::string HfIndexText(const std::vector<HfPlace>& places, int64_t total_bytes,
                        int64_t total_parameters) {
  json map = json::object();
  for (const HfPlace& place : places) map[place.tensor] = place.file;
  const json index = {
      {"metadata",
       {{"total_parameters", total_parameters}, {"total_size", total_bytes}}},
      {kWeightMapKey, std::move(map)}};
  return absl::StrCat(
      index.dump(2, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace),
      "\n");
}

}  // namespace shardshift::reshard
