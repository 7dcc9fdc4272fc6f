// From text files to an indexed dataset.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_DATA_PREPROCESS_H_
#define SHARDSHIFT_TRAINER_DATA_PREPROCESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace shardshift::trainer {

// Every byte is a token, its value the id.
inline constexpr int64_t kByteVocabSize = 256;
// With an end-of-document token.
inline constexpr int32_t kEndOfDocumentToken = 256;

struct PreprocessOptions {
  std::vector<std::string> inputs = {};
  std::string output_prefix = {};
  bool blank_lines = false;  // plain text, split on blank lines; else JSONL
  std::string json_key = "text";
  bool append_eod = false;  // the end-of-document token after each document
};

struct PreprocessReport {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t vocab_size = 0;
};

// Writes output_prefix.bin and .idx: one sequence a document, an empty
// document without a sequence. `progress` is called now and then with the
// input bytes read so far. Memory does not grow with the input.
// Errors: AlreadyExists if the output is there; those of DocumentReader;
// InvalidArgument if there is not one token. Then nothing is left behind.
absl::StatusOr<PreprocessReport> Preprocess(
    const PreprocessOptions& options,
    const std::function<void(int64_t bytes)>& progress);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_DATA_PREPROCESS_H_
