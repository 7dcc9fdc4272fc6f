// What several `ckpt` subcommands do first, and how they show it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_CKPT_OPEN_H_
#define SHARDSHIFT_TOOLS_CKPT_OPEN_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/format/table.h"
#include "ckpt/reader.h"
#include "reshard/formats/open_source.h"

namespace shardshift {

// Keeps the order in which keys were added.
using Json = nlohmann::ordered_json;

// Opens a step directory, or the newest step of a run directory that opens (a
// line on stderr says so if that is not the newest), or a checkpoint of another
// format: as a model's if it is known, else its tensors under their own names.
// With `fingerprints` all of such a one is read for them, with `verify` to
// check what checksums it has.
absl::StatusOr<std::shared_ptr<const ckpt::Reader>> OpenCheckpoint(
    const std::string& path, bool fingerprints = false, bool verify = false);

// The same, with what the format is and what was left out.
absl::StatusOr<reshard::OpenedSource> OpenSourceOfAnyKind(
    const std::string& path, bool fingerprints, bool verify);

// Refuses a checkpoint of another format, where only a run directory of ours
// will do; `what` tells what for: "`ls` lists the steps of runs".
// Errors: InvalidArgument; as DetectFormat.
absl::Status CheckNotForeign(const std::string& path, absl::string_view what);

// The state or record of a checkpoint; null if it is empty.
// Errors: DataLoss if `text` is not JSON; as CheckJsonDepth. `what` names it.
absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view what);

// `json` as text; of a path or message, bytes that are no UTF-8 are replaced.
std::string ToText(const Json& json, int indent = -1);

// Of a text longer than `max_bytes` so many from `begin` on, with its length;
// quoted, as all of a shorter one.
std::string ShortText(const std::string& text, int64_t max_bytes,
                      int64_t begin = 0);

// {"name", "role", "shape", "dtype"}
Json ToJson(const ckpt::Tensor& tensor);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_CKPT_OPEN_H_
