// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/safetensors.h"
#include "reshard/formats/tensor_bytes.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// `text` as JSON, as the reference writes it.
absl::StatusOr<std::string> JsonString(const std::string& text) {
  const auto dump = [&text](json::error_handler_t bad_utf8) {
    return json(text).dump(-1, ' ', /*ensure_ascii=*/false, bad_utf8);
  };
  std::string quoted = dump(json::error_handler_t::ignore);
  if (quoted == dump(json::error_handler_t::replace)) return quoted;
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), " is no valid UTF-8"));
}

absl::Status AppendMember(const std::string& key, absl::string_view value,
                          std::string& text) {
  SS_ASSIGN_OR_RETURN(const std::string quoted, JsonString(key));
  absl::StrAppend(&text, text == "{" ? "" : ",", quoted, ":", value);
  return absl::OkStatus();
}

absl::StatusOr<std::string> MetadataText(const SafetensorsHeader& header) {
  std::string text = "{";
  for (const auto& [key, value] : header.metadata) {
    SS_ASSIGN_OR_RETURN(const std::string quoted, JsonString(value));
    SS_RETURN_IF_ERROR(AppendMember(key, quoted, text));
  }
  return text + "}";
}

// With offsets from the first tensor on.
absl::StatusOr<std::string> HeaderText(const SafetensorsHeader& header) {
  std::string text = "{";
  if (!header.metadata.empty()) {
    SS_ASSIGN_OR_RETURN(const std::string metadata, MetadataText(header));
    SS_RETURN_IF_ERROR(AppendMember(kSafetensorsMetadataKey, metadata, text));
  }
  for (const SafetensorsTensor& tensor : header.tensors) {
    SS_RETURN_IF_ERROR(AppendMember(
        tensor.name,
        absl::StrCat(R"({"dtype":")", ckpt::Name(tensor.dtype), R"(","shape":)",
                     ckpt::ToString(tensor.shape), R"(,"data_offsets":[)",
                     tensor.begin, ",", tensor.end, "]}"),
        text));
  }
  text += '}';
  constexpr size_t kAlignment = 8;
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

absl::Status CheckNames(const SafetensorsHeader& header) {
  std::vector<absl::string_view> names;
  names.reserve(header.tensors.size());
  for (const auto& tensor : header.tensors) names.push_back(tensor.name);
  absl::c_sort(names);
  const auto twice = absl::c_adjacent_find(names);
  if (twice != names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quoted(*twice), " comes twice"));
  }
  if (!absl::c_binary_search(names, kSafetensorsMetadataKey))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a tensor is named ",
                                                 kSafetensorsMetadataKey,
                                                 ", which the format keeps for "
                                                 "itself"));
}

}  // namespace

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(SafetensorsHeader header) {
  SS_RETURN_IF_ERROR(CheckNames(header));
  absl::c_sort(header.tensors, [](const auto& a, const auto& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  // Leaves room for the header, and what comes before.
  constexpr int64_t kMaxDataBytes =
      std::numeric_limits<int64_t>::max() - 2 * kMaxSafetensorsHeaderBytes;
  int64_t end = 0;
  for (SafetensorsTensor& tensor : header.tensors) {
    const auto bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes.ok() || *bytes > kMaxDataBytes - end) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(tensor.name), " ",
                       ckpt::ToString(tensor.shape), " is too large"));
    }
    tensor.begin = end;
    tensor.end = end += *bytes;
  }
  SS_ASSIGN_OR_RETURN(const std::string text, HeaderText(header));
  if (std::ssize(text) > kMaxSafetensorsHeaderBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the header takes ", text.size(), " bytes, more than the ",
        kMaxSafetensorsHeaderBytes, " of the format; write more files"));
  }
  ckpt::Encoder length;
  length.PutU64(text.size());
  SafetensorsLayout layout;
  layout.header_bytes = absl::StrCat(length.bytes(), text);
  const auto data_begin = std::ssize(layout.header_bytes);
  for (SafetensorsTensor& tensor : header.tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  layout.file_bytes = data_begin + end;
  layout.header = std::move(header);
  return layout;
}

}  // namespace shardshift::reshard
