// The checkpoint formats by name.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_FORMAT_H_
#define SHARDSHIFT_RESHARD_FORMATS_FORMAT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

enum class Format : uint8_t {
  kNative,       // ours
  kSafetensors,  // a Hugging Face folder
  kDcp,          // PyTorch's distributed checkpoint
  kTorchDist,    // Megatron's, upon DCP
  kMegatron,     // Megatron's legacy files, mp_rank_*
  kDeepSpeed,    // ZeRO
  kUniversal,    // DeepSpeed's universal checkpoint
};

struct FormatInfo {
  Format format;
  absl::string_view name;  // as --from and --to want it
  absl::string_view what;
  bool reads_models;   // as one of our model families
  bool reads_generic;  // any tensors, under the names they have
  bool writes_models;
  bool writes_generic;
};

// In the order of the enumeration.
std::span<const FormatInfo> Formats();

inline const FormatInfo& InfoOf(Format format) {
  return Formats()[static_cast<size_t>(format)];
}

// What people are told that a checkpoint is: of ours the layout, else the
// format, and the layout if there is one. As JSON the layout or the format.
std::string ToString(Format format, const std::optional<Layout>& layout);
nlohmann::json ToJson(Format format, const std::optional<Layout>& layout);

// Errors: InvalidArgument, with the names that there are.
absl::StatusOr<Format> ParseFormat(absl::string_view name);

// What `path` looks like; nullopt if like nothing known.
// Errors: NotFound if there is nothing; those of the file system.
absl::StatusOr<std::optional<Format>> DetectFormat(const std::string& path);

// Refuses a path that DetectFormat knows nothing for: tells what is known, and
// names folders in it that are.
// Gives NotFound; FailedPrecondition for what is no directory.
absl::Status NothingKnown(const std::string& path);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_FORMAT_H_
