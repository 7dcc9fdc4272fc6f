// Writing an indexed dataset. Format: indexed_format.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_DATA_INDEXED_DATASET_WRITER_H_
#define SHARDSHIFT_TRAINER_DATA_INDEXED_DATASET_WRITER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/indexed_format.h"

namespace shardshift::trainer {

// Streams sequences to disk; memory does not grow with them. Everything goes
// to files named *.partial, of which Finish makes the two files of the
// dataset. A writer that is not finished leaves nothing.
class IndexedDatasetWriter {
 public:
  // Errors: AlreadyExists if `prefix`.bin or `prefix`.idx is there.
  static absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>> Create(
      const std::string& prefix, TokenType token_type);
  ~IndexedDatasetWriter();

  // Adds a sequence to the open document. REQUIRES: the ids fit the type.
  absl::Status AddSequence(std::span<const int32_t> tokens);

  // Closes the open document, which may be empty.
  absl::Status EndDocument();

  // REQUIRES: no sequence after the last EndDocument.
  absl::Status Finish();

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }

 private:
  class Stream;

  explicit IndexedDatasetWriter(std::string prefix, TokenType token_type);
  absl::Status WriteIndex();
  template <typename Visit>
  absl::Status ForEachMark(Visit visit);

  const std::string prefix_;
  const TokenType token_type_;
  int64_t num_tokens_ = 0;
  int64_t num_sequences_ = 0;
  int64_t num_documents_ = 0;
  std::unique_ptr<Stream> tokens_;
  // int32 marks in order of coming: the length of a sequence, or the end of a
  // document. The index, which has its tables one after the other, is written
  // from them at the end.
  std::unique_ptr<Stream> marks_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_DATA_INDEXED_DATASET_WRITER_H_
