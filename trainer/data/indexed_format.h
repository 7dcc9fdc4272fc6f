// The indexed dataset on disk: `prefix.idx` and `prefix.bin`, as Megatron
// writes them. All integers little-endian, nothing aligned.
//   idx: magic (9 bytes), u64 version 1, u8 token type, u64 sequences S,
//        u64 entries of the document index D, then int32 lengths in tokens
//        [S], int64 offsets in bytes into bin [S], int64 first sequence of
//        each document and at last S [D].
//   bin: the tokens of all sequences, back to back.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_DATA_INDEXED_FORMAT_H_
#define SHARDSHIFT_TRAINER_DATA_INDEXED_FORMAT_H_

#include <bit>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace shardshift::trainer {

static_assert(std::endian::native == std::endian::little);

inline constexpr absl::string_view kIndexMagic("MMIDIDX\0\0", 9);
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr int64_t kIndexHeaderBytes = 34;

// The codes of the format; it also knows floats, which are no tokens.
enum class TokenType : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kU16 = 8,
};

// Bytes of a token; 0 for a code that is no token type.
constexpr int64_t TokenBytes(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  return 0;
}

// The type Megatron's writer takes for a vocabulary.
constexpr TokenType TokenTypeFor(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::kU16 : TokenType::kI32;
}

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_DATA_INDEXED_FORMAT_H_
