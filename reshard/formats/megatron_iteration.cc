// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_iteration.h"

#include <algorithm>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kMaxTrackerBytes = 64;

}  // namespace

absl::StatusOr<std::string> MegatronIteration(const std::string& path) {
  const std::string tracker = ckpt::JoinPath(path, kMegatronTracker);
  SS_ASSIGN_OR_RETURN(const bool is_root, ckpt::Exists(tracker));
  if (!is_root) return path;
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(tracker));
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  std::string text(std::min(num_bytes, kMaxTrackerBytes), '\0');
  SS_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  const absl::string_view word = absl::StripAsciiWhitespace(text);
  if (word == "release") return ckpt::JoinPath(path, "release");
  int64_t iteration = 0;
  if (!absl::SimpleAtoi(word, &iteration) || iteration < 0) {
    return absl::DataLossError(absl::StrCat(
        tracker, " names no iteration, expected a number or \"release\""));
  }
  return ckpt::JoinPath(path, absl::StrFormat("iter_%07d", iteration));
}

std::string IterationName(int64_t iteration) {
  return iteration == 0 ? "release" : absl::StrFormat("iter_%07d", iteration);
}

int64_t IterationOf(const std::string& directory) {
  const size_t at = directory.rfind("iter_");
  int64_t iteration = 0;
  if (at == std::string::npos ||
      !absl::SimpleAtoi(directory.substr(at + 5), &iteration)) {
    return 0;
  }
  return iteration;
}

}  // namespace shardshift::reshard
