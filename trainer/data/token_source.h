// Where training tokens come from: a numbered set of samples.
// A sample is S + 1 tokens, S the sequence length: the first S are the inputs,
// the last S the labels. Sources are immutable; all calls may be concurrent.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_DATA_TOKEN_SOURCE_H_
#define SHARDSHIFT_TRAINER_DATA_TOKEN_SOURCE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace shardshift::trainer {

inline constexpr int64_t kUnlimitedSamples =
    std::numeric_limits<int64_t>::max();

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  // Samples in one epoch, or kUnlimitedSamples.
  virtual int64_t num_samples() const = 0;

  virtual int64_t seq_length() const = 0;

  // Fills `tokens`, seq_length() + 1 of them, with sample `index` of
  // [0, num_samples()).
  // Errors: OutOfRange for the index; DataLoss naming file and position for a
  // token outside the vocabulary; those of reading the file.
  virtual absl::Status Sample(int64_t index,
                              std::span<int32_t> tokens) const = 0;

  // What makes the data what they are: equal exactly for sources that give
  // the same samples. Free of paths, so that files may move.
  virtual nlohmann::json Identity() const = 0;
};

// Indexed datasets (`prefix`.idx, `prefix`.bin), their tokens concatenated:
// sample i is tokens [i*S, i*S + S + 1), across sequence and file borders.
// Errors: those of IndexedDataset::Open; InvalidArgument if the tokens do not
// fill one sample.
absl::StatusOr<std::unique_ptr<TokenSource>> OpenIndexedTokenSource(
    const std::vector<std::string>& prefixes, int64_t seq_length,
    int64_t vocab_size);

// Endless tokens, each a function of (seed, sample, position) alone. Low ids
// are frequent, as in text, and every second token mostly follows from the one
// before it, so that a model has something to learn.
// REQUIRES: seq_length > 0, vocab_size in [2, 2^31).
std::unique_ptr<TokenSource> MakeMockTokenSource(uint64_t seed,
                                                 int64_t seq_length,
                                                 int64_t vocab_size);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_DATA_TOKEN_SOURCE_H_
