// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_files.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

constexpr absl::string_view kModelEnd = "_model_states.pt";
constexpr absl::string_view kLayerEnd = "-model_states.pt";
constexpr absl::string_view kOptimizerEnd = "_optim_states.pt";
// Of a name of a folder, and an end of line.
constexpr int64_t kMaxTagBytes = 256;

struct RankFile {
  std::string path;
  int64_t data = 0;
  int64_t model = 0;
  bool sharded = false;  // tells its data-parallel rank
};

// Takes "NAME_<number>" off the front.
std::optional<int64_t> ConsumeRank(absl::string_view name,
                                   absl::string_view& text) {
  if (!absl::ConsumePrefix(&text, name)) return std::nullopt;
  size_t digits = 0;
  while (digits < text.size() &&
         absl::ascii_isdigit(static_cast<unsigned char>(text[digits]))) {
    ++digits;
  }
  int64_t rank = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &rank)) return std::nullopt;
  text.remove_prefix(digits);
  return rank;
}

// Of a name without its end.
std::optional<RankFile> ParseRanks(absl::string_view text) {
  RankFile file;
  if (const auto data = ConsumeRank("zero_pp_rank_", text); data.has_value()) {
    file.data = *data;
    file.sharded = true;
    if (!absl::ConsumePrefix(&text, "_")) return std::nullopt;
  }
  const auto model = ConsumeRank("mp_rank_", text);
  if (!model.has_value() || !text.empty()) return std::nullopt;
  file.model = *model;
  return file;
}

// "layer_<number>", with "-model_<rank>" where there are ranks.
absl::StatusOr<RankFile> ParseLayer(const std::string& directory,
                                    const std::string& name,
                                    absl::string_view text) {
  RankFile file;
  file.path = ckpt::JoinPath(directory, name);
  const std::optional<int64_t> layer = ConsumeRank("layer_", text);
  const std::optional<int64_t> model =
      text.empty() ? 0 : ConsumeRank("-model_", text);
  if (!layer.has_value() || !model.has_value() || !text.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        file.path,
        " is of a pipeline with other ranks than are known, expected "
        "layer_<number>-model_<rank>-model_states.pt"));
  }
  file.data = *layer;
  file.model = *model;
  return file;
}

// By a number from 0 on that every rank has once.
absl::StatusOr<std::vector<std::string>> InOrder(
    const std::string& directory, const std::vector<RankFile>& files,
    int64_t RankFile::*rank) {
  std::map<int64_t, std::string> by_rank;
  for (const RankFile& file : files) {
    const auto [it, is_new] = by_rank.emplace(file.*rank, file.path);
    if (!is_new) {
      return absl::DataLossError(absl::StrCat(
          directory, " has ", it->second, " and ", file.path,
          " for one rank, expected one of them; remove what is of another "
          "run"));
    }
  }
  std::vector<std::string> paths;
  paths.reserve(by_rank.size());
  for (auto& [number, path] : by_rank) {
    if (number != std::ssize(paths)) {
      return absl::DataLossError(absl::StrCat(
          directory, " has ", path, ", but not the same file of rank ",
          paths.size(), "; all ranks are needed"));
    }
    paths.push_back(std::move(path));
  }
  return paths;
}

struct Listing {
  std::vector<RankFile> models;
  std::vector<RankFile> optimizers;
  std::vector<RankFile> layers;  // `data` is the layer
  bool has_experts = false;
};

absl::StatusOr<Listing> List(const std::string& directory) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ckpt::ListDirectory(directory));
  Listing listing;
  for (const std::string& name : names) {
    absl::string_view text = name;
    if (absl::ConsumeSuffix(&text, kLayerEnd)) {
      SS_ASSIGN_OR_RETURN(RankFile file, ParseLayer(directory, name, text));
      listing.layers.push_back(std::move(file));
      continue;
    }
    const bool is_model = absl::ConsumeSuffix(&text, kModelEnd);
    if (!is_model && !absl::ConsumeSuffix(&text, kOptimizerEnd)) continue;
    if (absl::StartsWith(text, "layer_") ||
        absl::StartsWith(text, "expp_rank_")) {
      listing.has_experts = true;
    }
    if (!is_model) absl::ConsumePrefix(&text, "bf16_");
    std::optional<RankFile> file = ParseRanks(text);
    if (!file.has_value()) continue;
    file->path = ckpt::JoinPath(directory, name);
    (is_model ? listing.models : listing.optimizers)
        .push_back(*std::move(file));
  }
  return listing;
}

// By one of the numbers.
using FilesByNumber = std::map<int64_t, std::vector<RankFile>>;

FilesByNumber Grouped(const std::vector<RankFile>& files,
                      int64_t RankFile::*number) {
  FilesByNumber groups;
  for (const RankFile& file : files) groups[file.*number].push_back(file);
  return groups;
}

absl::Status CheckModels(const std::string& directory,
                         const std::vector<RankFile>& models) {
  if (models.empty()) {
    return absl::NotFoundError(absl::StrCat(
        directory,
        " has no mp_rank_*_model_states.pt; name a folder with a file "
        "`latest`, or the folder of a tag such as global_step100"));
  }
  for (const RankFile& model : models) {
    if (model.sharded == models.front().sharded) continue;
    return absl::DataLossError(
        absl::StrCat(directory, " has both ", models.front().path, " and ",
                     model.path, ", which are of different runs"));
  }
  return absl::OkStatus();
}

// All ranks of a model-parallel rank.
absl::StatusOr<DeepSpeedFiles> FilesOfRank(
    const std::string& directory, const std::vector<RankFile>& models,
    const std::vector<RankFile>& optimizers) {
  DeepSpeedFiles files = {.directory = directory};
  files.sharded = models.front().sharded;
  SS_ASSIGN_OR_RETURN(files.models,
                      InOrder(directory, models, &RankFile::data));
  SS_ASSIGN_OR_RETURN(files.optimizers,
                      InOrder(directory, optimizers, &RankFile::data));
  return files;
}

absl::Status CheckSameRanks(const DeepSpeedFolder& folder) {
  const DeepSpeedFiles& first = folder.ranks.front();
  for (const DeepSpeedFiles& files : folder.ranks) {
    if (files.models.size() == first.models.size() &&
        files.optimizers.size() == first.optimizers.size()) {
      continue;
    }
    return absl::DataLossError(absl::StrCat(
        folder.directory, " has ", first.models.size(), " and ",
        first.optimizers.size(), " files like ", first.models.front(), ", but ",
        files.models.size(), " and ", files.optimizers.size(), " like ",
        files.models.front(), "; all ranks are needed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> DeepSpeedTag(const std::string& path,
                                         absl::string_view latest) {
  const std::string file_path = ckpt::JoinPath(path, latest);
  SS_ASSIGN_OR_RETURN(const bool exists, ckpt::Exists(file_path));
  if (!exists) return path;
  SS_ASSIGN_OR_RETURN(const ckpt::File file,
                      ckpt::File::OpenForRead(file_path));
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  std::string tag;
  if (num_bytes <= kMaxTagBytes) {
    SS_ASSIGN_OR_RETURN(tag, ckpt::ReadWholeFile(file_path));
    absl::StripAsciiWhitespace(&tag);
  }
  if (tag.empty() || tag == "." || tag == ".." || absl::StrContains(tag, '/') ||
      absl::StrContains(tag, '\0')) {
    return absl::DataLossError(
        absl::StrCat(file_path, " says \"", absl::CHexEscape(tag), "\" in ",
                     num_bytes, " bytes, expected the name of a folder"));
  }
  return ckpt::JoinPath(path, tag);
}

absl::StatusOr<DeepSpeedFolder> ListDeepSpeedFiles(
    const std::string& directory) {
  SS_ASSIGN_OR_RETURN(const Listing listing, List(directory));
  if (listing.has_experts) {
    return absl::UnimplementedError(absl::StrCat(
        directory, " is of a run with experts (MoE), which cannot be read"));
  }
  SS_RETURN_IF_ERROR(CheckModels(directory, listing.models));
  DeepSpeedFolder folder = {.directory = directory};
  FilesByNumber optimizers = Grouped(listing.optimizers, &RankFile::model);
  for (const auto& [rank, models] : Grouped(listing.models, &RankFile::model)) {
    if (rank != std::ssize(folder.ranks)) {
      return absl::DataLossError(
          absl::StrCat(directory, " has ", models.front().path,
                       ", but not the same file of mp_rank_",
                       folder.ranks.size(), "; all ranks are needed"));
    }
    SS_ASSIGN_OR_RETURN(DeepSpeedFiles files,
                        FilesOfRank(directory, models, optimizers[rank]));
    optimizers.erase(rank);
    folder.ranks.push_back(std::move(files));
  }
  if (!optimizers.empty()) {
    return absl::DataLossError(absl::StrCat(
        directory, " has ", optimizers.begin()->second.front().path,
        ", but no model file of its model-parallel rank"));
  }
  SS_RETURN_IF_ERROR(CheckSameRanks(folder));
  for (const auto& [number, layers] :
       Grouped(listing.layers, &RankFile::data)) {
    DeepSpeedLayer layer = {.number = number};
    SS_ASSIGN_OR_RETURN(layer.paths,
                        InOrder(directory, layers, &RankFile::model));
    folder.layers.push_back(std::move(layer));
  }
  return folder;
}

absl::StatusOr<OpenedTorch> OpenTorch(const std::string& path) {
  SS_ASSIGN_OR_RETURN(ckpt::File file, ckpt::File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(TorchFile torch, TorchFile::Read(file));
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  return OpenedTorch{std::move(file), std::move(torch), num_bytes};
}

}  // namespace shardshift::reshard
