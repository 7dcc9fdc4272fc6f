// SPDX-License-Identifier: Apache-2.0
#include "tools/output_checks.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift {
namespace {

absl::Status CheckWritable(const char* flag, const std::string& path,
                           const std::filesystem::path& existing) {
  if (access(existing.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(
      errno,
      absl::StrCat(flag, " ", path, ": cannot write ", existing.string()));
}

}  // namespace

absl::Status CheckOutputs(const std::optional<std::string>& save,
                          const std::optional<std::string>& log_jsonl) {
  std::error_code ignored;
  if (save.has_value()) {
    std::filesystem::path above = std::filesystem::absolute(*save, ignored);
    while (!std::filesystem::exists(above, ignored)) {
      above = above.parent_path();
    }
    if (!std::filesystem::is_directory(above, ignored)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--save ", *save, ": ", above.string(),
                       " is no directory; name another"));
    }
    SS_RETURN_IF_ERROR(CheckWritable("--save", *save, above));
  }
  if (!log_jsonl.has_value()) return absl::OkStatus();
  const std::filesystem::path log =
      std::filesystem::absolute(*log_jsonl, ignored);
  return CheckWritable(
      "--log-jsonl", *log_jsonl,
      std::filesystem::exists(log, ignored) ? log : log.parent_path());
}

}  // namespace shardshift
