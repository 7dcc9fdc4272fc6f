// Reading an indexed dataset. Format: indexed_format.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_DATA_INDEXED_DATASET_H_
#define SHARDSHIFT_TRAINER_DATA_INDEXED_DATASET_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/io/file.h"
#include "trainer/data/indexed_format.h"

namespace shardshift::trainer {

// Immutable; all calls may be concurrent. Memory does not grow with the files.
class IndexedDataset {
 public:
  // Opens `prefix`.idx and `prefix`.bin and checks the whole index against
  // the format and the size of the tokens.
  // Errors: those of opening; DataLoss naming file and place; Unimplemented
  // for another version, floats or the modes of multimodal data.
  static absl::StatusOr<IndexedDataset> Open(const std::string& prefix);

  TokenType token_type() const { return token_type_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_document_entries_ - 1; }

  // Tokens [begin, begin + tokens.size()) of all sequences back to back.
  // REQUIRES: a range within num_tokens().
  // Errors: DataLoss naming file and position of a token that is not in
  // [0, vocab_size).
  absl::Status ReadTokens(int64_t begin, int64_t vocab_size,
                          std::span<int32_t> tokens) const;

  // XXH3-128, in hexadecimal, of the index file.
  absl::StatusOr<std::string> IndexDigest() const;
  // The same of the token file: all of it up to 4 MiB, else 64 windows of
  // 64 KiB spread evenly, so that a start does not read a terabyte.
  absl::StatusOr<std::string> TokensDigest() const;

 private:
  IndexedDataset(ckpt::File index, ckpt::File tokens)
      : index_(std::move(index)), tokens_(std::move(tokens)) {}

  absl::Status ReadHeader();
  absl::Status CheckSequences();
  absl::Status CheckDocuments() const;
  absl::Status Corrupt(absl::string_view what) const;

  ckpt::File index_;
  ckpt::File tokens_;
  TokenType token_type_ = TokenType::kU16;
  int64_t num_tokens_ = 0;
  int64_t num_sequences_ = 0;
  int64_t num_document_entries_ = 0;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_DATA_INDEXED_DATASET_H_
