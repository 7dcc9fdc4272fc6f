// Text files as streams of documents.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_DATA_TEXT_DOCUMENTS_H_
#define SHARDSHIFT_TRAINER_DATA_TEXT_DOCUMENTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shardshift::trainer {

// The longest line and the longest document, which bounds the memory.
inline constexpr int64_t kMaxDocumentBytes = int64_t{256} << 20;

// Documents in the order of the file.
class DocumentReader {
 public:
  virtual ~DocumentReader() = default;

  // Puts the next document into `text`; false at the end of the file.
  // Errors: those of reading; InvalidArgument naming file and line for what is
  // no document or is too long.
  virtual absl::StatusOr<bool> Next(std::string& text) = 0;

  // Bytes of the file behind the last document.
  virtual int64_t position_bytes() const = 0;
};

// One JSON object a line, the document in its string `key`. Empty lines are
// passed over.
absl::StatusOr<std::unique_ptr<DocumentReader>> OpenJsonLines(
    const std::string& path, const std::string& key);

// Plain text: documents are what stands between lines that are empty but for
// white space; the last line end of each is not part of it.
absl::StatusOr<std::unique_ptr<DocumentReader>> OpenBlankLineSeparated(
    const std::string& path);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_DATA_TEXT_DOCUMENTS_H_
