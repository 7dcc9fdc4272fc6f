// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/format.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "reshard/formats/dcp_shards.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/hf_index.h"

namespace shardshift::reshard {
namespace {

constexpr std::array<FormatInfo, 7> kFormats = {{
    {Format::kNative, "native", "HDF5 parts and an index, of any layout", true,
     true, true, true},
    {Format::kSafetensors, "safetensors", "a Hugging Face folder", true, true,
     true, true},
    {Format::kDcp, "dcp", "PyTorch distributed checkpoint", true, true, true,
     true},
    {Format::kTorchDist, "torch_dist", "Megatron-Core distributed checkpoint",
     true, true, true, false},
    {Format::kMegatron, "megatron", "Megatron legacy files, mp_rank_*", true,
     false, true, false},
    {Format::kDeepSpeed, "deepspeed", "DeepSpeed ZeRO", false, true, false,
     false},
    {Format::kUniversal, "universal", "DeepSpeed universal checkpoint", false,
     true, false, false},
}};

bool IsSafetensorsName(absl::string_view name) {
  return absl::EndsWith(name, ".safetensors") ||
         absl::EndsWith(name, ".safetensors.index.json");
}

// By the names of what lies in a directory.
std::optional<Format> FormatOfNames(const std::vector<std::string>& names) {
  const auto has = [&names](absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto any = [&names](auto&& is_such) {
    return std::any_of(names.begin(), names.end(), is_such);
  };
  if (has(ckpt::kIndexFileName) || any([](const std::string& name) {
        return ckpt::ParseStepName(name).has_value();
      })) {
    return Format::kNative;
  }
  // One that lacks .metadata was not saved whole, as its reader says.
  if (has(".metadata") || any([](const std::string& name) {
        return absl::EndsWith(name, ".distcp");
      })) {
    return has("metadata.json") ? Format::kTorchDist : Format::kDcp;
  }
  const bool has_model_states = any([](const std::string& name) {
    return absl::EndsWith(name, "_model_states.pt");
  });
  if (has("latest_universal") || (has_model_states && has("zero"))) {
    return Format::kUniversal;
  }
  if (has_model_states || any([](const std::string& name) {
        return absl::StartsWith(name, "zero_pp_rank_");
      })) {
    return Format::kDeepSpeed;
  }
  if (any([](const std::string& name) {
        return absl::StartsWith(name, "mp_rank_");
      })) {
    return Format::kMegatron;
  }
  // Parts of tensors, unless the whole files lie there too.
  if (any(IsShardName) && !has(kHfIndexName)) return Format::kDcp;
  // Pickles are not read, which the reader of the folder says best.
  if (any(IsSafetensorsName) || any(IsPickledHfName)) {
    return Format::kSafetensors;
  }
  return std::nullopt;
}

constexpr char kWhatIsKnown[] =
    "a run directory with step-* in it or one step, a Hugging Face folder "
    "(model.safetensors, or its parts and index), a distributed checkpoint of "
    "PyTorch (.metadata, or shard-*.safetensors) or Megatron-Core, Megatron's "
    "legacy files (mp_rank_*, or iter_* that hold them), or DeepSpeed's";

// A hint needs no more.
constexpr int64_t kMaxFoldersLookedAt = 1000;
constexpr int64_t kMaxFoldersNamed = 3;

// "PATH (format)" of each folder in `path` that is a checkpoint.
std::vector<std::string> CheckpointsIn(const std::string& path) {
  std::vector<std::string> found;
  auto names = ckpt::ListDirectory(path);
  if (!names.ok()) return found;
  names->resize(std::min<size_t>(names->size(), kMaxFoldersLookedAt));
  for (const std::string& name : *names) {
    if (std::ssize(found) == kMaxFoldersNamed) {
      found.emplace_back("...");
      break;
    }
    // What an unfinished save or deletion left is none.
    if (absl::EndsWith(name, ".partial") ||
        absl::EndsWith(name, ckpt::kDeletedSuffix)) {
      continue;
    }
    const std::string inner = ckpt::JoinPath(path, name);
    const auto is_directory = ckpt::Exists(ckpt::JoinPath(inner, "."));
    if (!is_directory.value_or(false)) continue;
    const auto format = DetectFormat(inner);
    if (!format.ok() || !format->has_value()) continue;
    found.push_back(absl::StrCat(inner, " (", InfoOf(**format).name, ")"));
  }
  return found;
}

}  // namespace

std::span<const FormatInfo> Formats() { return kFormats; }

std::string ToString(Format format, const std::optional<Layout>& layout) {
  if (format == Format::kNative) return ToString(layout);
  std::string text(InfoOf(format).name);
  if (layout.has_value()) absl::StrAppend(&text, " ", ToString(*layout));
  return text;
}

nlohmann::json ToJson(Format format, const std::optional<Layout>& layout) {
  if (format == Format::kNative) return ToJson(layout);
  return std::string(InfoOf(format).name);
}

absl::StatusOr<Format> ParseFormat(absl::string_view name) {
  for (const FormatInfo& info : kFormats) {
    if (info.name == name) return info.format;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is no format; there are ",
                   absl::StrJoin(kFormats, ", ",
                                 [](std::string* out, const FormatInfo& info) {
                                   absl::StrAppend(out, info.name);
                                 })));
}

absl::StatusOr<std::optional<Format>> DetectFormat(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const bool exists, ckpt::Exists(path));
  if (!exists) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  SS_ASSIGN_OR_RETURN(const bool is_directory,
                      ckpt::Exists(ckpt::JoinPath(path, ".")));
  if (!is_directory) {
    if (IsShardName(path.substr(path.rfind('/') + 1))) return Format::kDcp;
    return IsSafetensorsName(path) ? std::optional(Format::kSafetensors)
                                   : std::nullopt;
  }
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ckpt::ListDirectory(path));
  std::optional<Format> found = FormatOfNames(names);
  if (!found.has_value() || found == Format::kSafetensors) {
    // DeepSpeed's root, whose tags have any names, may lie in a model's folder.
    const absl::StatusOr<std::string> tag = DeepSpeedTag(path, "latest");
    const auto inner = ckpt::ListDirectory(tag.value_or(path));
    const std::optional<Format> of_tag =
        inner.ok() ? FormatOfNames(*inner) : std::nullopt;
    if (of_tag == Format::kDeepSpeed) found = of_tag;
  }
  // A root names its newest iteration.
  for (const std::string& name : names) {
    if (found.has_value()) break;
    if (!absl::StartsWith(name, "iter_") && name != "release" &&
        !absl::StartsWith(name, "global_step")) {
      continue;
    }
    const absl::StatusOr<std::vector<std::string>> inner =
        ckpt::ListDirectory(ckpt::JoinPath(path, name));
    if (inner.ok()) found = FormatOfNames(*inner);
  }
  return found;
}

absl::Status NothingKnown(const std::string& path) {
  const auto is_directory = ckpt::Exists(ckpt::JoinPath(path, "."));
  if (!is_directory.value_or(false)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is a file that is no checkpoint, as only one of safetensors can be; "
        "name a directory: ",
        kWhatIsKnown));
  }
  const std::vector<std::string> inside = CheckpointsIn(path);
  return absl::NotFoundError(absl::StrCat(
      path, " holds no checkpoint: expected ", kWhatIsKnown,
      inside.empty()
          ? ""
          : absl::StrCat("; did you mean ", absl::StrJoin(inside, ", "), "?")));
}

}  // namespace shardshift::reshard
