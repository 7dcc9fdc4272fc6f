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
constexpr absl::string_view kOptimizerEnd = "_optim_states.pt";
constexpr int64_t kMaxTagBytes = 4096;

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
  bool has_layers = false;
  bool has_experts = false;
};

absl::StatusOr<Listing> List(const std::string& directory) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ckpt::ListDirectory(directory));
  Listing listing;
  for (const std::string& name : names) {
    absl::string_view text = name;
    const bool is_model = absl::ConsumeSuffix(&text, kModelEnd);
    if (!is_model && !absl::ConsumeSuffix(&text, kOptimizerEnd)) {
      // The files of layers are named otherwise.
      if (!absl::EndsWith(name, "-model_states.pt")) continue;
    }
    if (absl::StartsWith(text, "layer_")) {
      (absl::StrContains(text, "_expert_") ? listing.has_experts
                                           : listing.has_layers) = true;
      continue;
    }
    if (absl::StartsWith(text, "expp_rank_")) listing.has_experts = true;
    if (!is_model) absl::ConsumePrefix(&text, "bf16_");
    std::optional<RankFile> file = ParseRanks(text);
    if (!file.has_value()) continue;
    file->path = ckpt::JoinPath(directory, name);
    (is_model ? listing.models : listing.optimizers)
        .push_back(*std::move(file));
  }
  return listing;
}

absl::StatusOr<DeepSpeedFiles> OrderModels(const std::string& directory,
                                           const Listing& listing) {
  if (listing.models.empty()) {
    return absl::NotFoundError(absl::StrCat(
        directory,
        " has no mp_rank_*_model_states.pt; name a folder with a file "
        "`latest`, or the folder of a tag such as global_step100"));
  }
  DeepSpeedFiles files = {.directory = directory};
  files.sharded = listing.models.front().sharded;
  for (const RankFile& model : listing.models) {
    if (model.sharded == files.sharded) continue;
    return absl::DataLossError(
        absl::StrCat(directory, " has both ", listing.models.front().path,
                     " and ", model.path, ", which are of different runs"));
  }
  SS_ASSIGN_OR_RETURN(files.models, InOrder(directory, listing.models,
                                            files.sharded ? &RankFile::data
                                                          : &RankFile::model));
  return files;
}

absl::Status RefuseModelParallel(const std::string& directory,
                                 const Listing& listing) {
  const auto refuse = [&directory](absl::string_view what) {
    return absl::UnimplementedError(absl::StrCat(
        directory, " is of a run with ", what,
        ", which cannot be read; DeepSpeed's ds_to_universal makes a universal "
        "checkpoint of it, which can"));
  };
  if (listing.has_experts) return refuse("experts (MoE)");
  if (listing.has_layers) return refuse("a pipeline module (layer_* files)");
  for (const auto* files : {&listing.models, &listing.optimizers}) {
    for (const RankFile& file : *files) {
      if (file.model != 0) {
        return refuse("model parallelism (AutoTP, mp_rank_01 and more)");
      }
    }
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

absl::StatusOr<DeepSpeedFiles> ListModelFiles(const std::string& directory) {
  SS_ASSIGN_OR_RETURN(const Listing listing, List(directory));
  return OrderModels(directory, listing);
}

absl::StatusOr<DeepSpeedFiles> ListDeepSpeedFiles(
    const std::string& directory) {
  SS_ASSIGN_OR_RETURN(const Listing listing, List(directory));
  SS_RETURN_IF_ERROR(RefuseModelParallel(directory, listing));
  SS_ASSIGN_OR_RETURN(DeepSpeedFiles files, OrderModels(directory, listing));
  SS_ASSIGN_OR_RETURN(files.optimizers,
                      InOrder(directory, listing.optimizers, &RankFile::data));
  return files;
}

absl::StatusOr<OpenedTorch> OpenTorch(const std::string& path) {
  SS_ASSIGN_OR_RETURN(ckpt::File file, ckpt::File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(TorchFile torch, TorchFile::Read(file));
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  return OpenedTorch{std::move(file), std::move(torch), num_bytes};
}

}  // namespace shardshift::reshard
