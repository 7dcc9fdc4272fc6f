// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const File file, File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  std::string text(static_cast<size_t>(size), '\0');
  SS_RETURN_IF_ERROR(file.ReadAt(
      0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text) {
  const std::string temporary = path + ".partial";
  SS_RETURN_IF_ERROR(RemoveTree(temporary));
  SS_ASSIGN_OR_RETURN(const File file, File::Create(temporary));
  SS_RETURN_IF_ERROR(file.WriteAt(0, AsBytes(text)));
  SS_RETURN_IF_ERROR(file.Sync());
  return Rename(temporary, path);
}

}  // namespace shardshift::ckpt
