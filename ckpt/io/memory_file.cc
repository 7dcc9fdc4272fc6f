// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"

namespace shardshift::ckpt {

absl::StatusOr<File> File::InMemory(std::string path,
                                    std::span<const std::byte> bytes) {
  const int fd = SystemCalls::Current().MemoryFile();
  if (fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot take memory for ", path, ": ",
                     std::generic_category().message(errno)));
  }
  File file(fd, std::move(path));
  SS_RETURN_IF_ERROR(file.WriteAt(0, bytes));
  return file;
}

}  // namespace shardshift::ckpt
