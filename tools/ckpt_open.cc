// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt_open.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/json_text.h"
#include "tools/cli.h"

namespace shardshift {

absl::StatusOr<reshard::OpenedSource> OpenSourceOfAnyKind(
    const std::string& path, bool fingerprints, bool verify) {
  reshard::OpenOptions options;
  options.fingerprints = fingerprints;
  options.verify = verify;
  absl::StatusOr<reshard::OpenedSource> source =
      reshard::OpenSource(path, options);
  // Shown without a model, if that is all there is to know.
  if (!source.ok() &&
      source.status().message().find("--generic") != absl::string_view::npos) {
    options.foreign.generic = true;
    source = reshard::OpenSource(path, options);
  }
  SS_RETURN_IF_ERROR(source.status());
  for (const std::string& note : source->notes) {
    std::cerr << "note: " << Printable(note) << std::endl;
  }
  return source;
}

absl::StatusOr<std::shared_ptr<const ckpt::Reader>> OpenCheckpoint(
    const std::string& path, bool fingerprints, bool verify) {
  SS_ASSIGN_OR_RETURN(reshard::OpenedSource source,
                      OpenSourceOfAnyKind(path, fingerprints, verify));
  return std::move(source.reader);
}

absl::Status CheckNotForeign(const std::string& path, absl::string_view what) {
  SS_ASSIGN_OR_RETURN(const std::optional<reshard::Format> format,
                      reshard::DetectFormat(path));
  if (format.value_or(reshard::Format::kNative) == reshard::Format::kNative) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is a checkpoint of another format, ",
                   reshard::InfoOf(*format).name, ", and ", what,
                   " of ours alone; `ckpt show` tells what it holds"));
}

absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view what) {
  if (text.empty()) return Json();
  SS_RETURN_IF_ERROR(Annotate(reshard::CheckJsonDepth(text), what));
  Json json = Json::parse(text.begin(), text.end(), nullptr,
                          /*allow_exceptions=*/false);
  if (!json.is_discarded()) return json;
  return absl::DataLossError(absl::StrCat(what, " is not JSON"));
}

std::string ToText(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

std::string ShortText(const std::string& text, int64_t max_bytes,
                      int64_t begin) {
  const auto size = std::ssize(text);
  if (size <= max_bytes) return ToText(text);
  const int64_t end = std::min(begin + max_bytes, size);
  return absl::StrCat(begin > 0 ? "..." : "",
                      ToText(text.substr(begin, end - begin)),
                      end < size ? "..." : "", " (", size, " bytes)");
}

Json ToJson(const ckpt::Tensor& tensor) {
  Json json;
  json["name"] = tensor.name;
  json["role"] = tensor.role;
  json["shape"] = tensor.shape;
  json["dtype"] = std::string(ckpt::Name(tensor.dtype));
  return json;
}

}  // namespace shardshift
