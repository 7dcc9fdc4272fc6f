// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_iteration.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kMaxTrackerBytes = 64;

// For messages: the iterations in a root, of which one can be named.
absl::StatusOr<std::vector<std::string>> IterationsIn(const std::string& root) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ckpt::ListDirectory(root));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, "iter_") || name == "release") {
      found.push_back(ckpt::JoinPath(root, name));
    }
  }
  return found;
}

// An iteration that the tracker names has to be there.
absl::StatusOr<std::string> Present(const std::string& root,
                                    const std::string& name) {
  std::string directory = ckpt::JoinPath(root, name);
  SS_ASSIGN_OR_RETURN(const bool exists, ckpt::Exists(directory));
  if (exists) return directory;
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> found, IterationsIn(root));
  return absl::DataLossError(absl::StrCat(
      ckpt::JoinPath(root, kMegatronTracker), " names ", name,
      ", which is not there",
      found.empty() ? ""
                    : absl::StrCat("; one that is can be named by itself: ",
                                   absl::StrJoin(found, ", "))));
}

}  // namespace

absl::StatusOr<std::string> MegatronIteration(const std::string& path) {
  const std::string tracker = ckpt::JoinPath(path, kMegatronTracker);
  SS_ASSIGN_OR_RETURN(const bool is_root, ckpt::Exists(tracker));
  if (!is_root) {
    SS_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                        IterationsIn(path));
    if (found.empty()) return path;
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has no ", kMegatronTracker,
        ", which tells the iteration; name one: ", absl::StrJoin(found, ", ")));
  }
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(tracker));
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  std::string text(std::min(num_bytes, kMaxTrackerBytes), '\0');
  SS_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  const absl::string_view word = absl::StripAsciiWhitespace(text);
  if (word == "release") return Present(path, "release");
  int64_t iteration = 0;
  if (!absl::SimpleAtoi(word, &iteration) || iteration < 0) {
    return absl::DataLossError(absl::StrCat(
        tracker, " names no iteration, expected a number or \"release\""));
  }
  return Present(path, absl::StrFormat("iter_%07d", iteration));
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
