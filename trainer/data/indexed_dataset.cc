// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/indexed_dataset.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

constexpr int64_t kEntriesPerRead = 65536;
constexpr int64_t kWindowBytes = 64 << 10;
constexpr int64_t kNumWindows = 64;

template <typename T>
absl::Status ReadArray(const ckpt::File& file, int64_t offset_bytes,
                       std::span<T> values) {
  return file.ReadAt(offset_bytes, std::as_writable_bytes(values));
}

// Reads `tokens.size()` values of type T and narrows them. Gives the index of
// the first one outside [0, vocab_size), or -1.
template <typename T>
absl::StatusOr<int64_t> ReadAs(const ckpt::File& file, int64_t begin,
                               int64_t vocab_size, std::span<int32_t> tokens) {
  std::vector<T> raw(tokens.size());
  SS_RETURN_IF_ERROR(
      ReadArray(file, begin * int64_t{sizeof(T)}, std::span(raw)));
  for (size_t i = 0; i < raw.size(); ++i) {
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): a number, no character.
    const int64_t token = raw[i];
    if (token < 0 || token >= vocab_size) return static_cast<int64_t>(i);
    tokens[i] = static_cast<int32_t>(token);
  }
  return -1;
}

absl::StatusOr<int64_t> ReadTyped(const ckpt::File& file, TokenType type,
                                  int64_t begin, int64_t vocab_size,
                                  std::span<int32_t> tokens) {
  switch (type) {
    case TokenType::kU8:
      return ReadAs<uint8_t>(file, begin, vocab_size, tokens);
    case TokenType::kI8:
      return ReadAs<int8_t>(file, begin, vocab_size, tokens);
    case TokenType::kI16:
      return ReadAs<int16_t>(file, begin, vocab_size, tokens);
    case TokenType::kI32:
      return ReadAs<int32_t>(file, begin, vocab_size, tokens);
    case TokenType::kI64:
      return ReadAs<int64_t>(file, begin, vocab_size, tokens);
    case TokenType::kU16:
      return ReadAs<uint16_t>(file, begin, vocab_size, tokens);
  }
  return absl::InternalError("a token type that Open does not admit");
}

// Digest of `num_windows` windows of `window_bytes` spread over the file.
absl::StatusOr<std::string> DigestWindows(const ckpt::File& file,
                                          int64_t size_bytes,
                                          int64_t num_windows) {
  ckpt::Digest128Stream digest;
  std::vector<std::byte> window(kWindowBytes);
  for (int64_t w = 0; w < num_windows; ++w) {
    // The last window ends with the file; doubles would do, 128 bits are exact.
    const int64_t offset =
        num_windows * kWindowBytes >= size_bytes
            ? w * kWindowBytes
            : static_cast<int64_t>(
                  static_cast<__int128>(size_bytes - kWindowBytes) * w /
                  (num_windows - 1));
    window.resize(std::min(kWindowBytes, size_bytes - offset));
    SS_RETURN_IF_ERROR(file.ReadAt(offset, window));
    digest.Update(window);
  }
  return ckpt::ToString(digest.Digest());
}

}  // namespace

absl::Status IndexedDataset::Corrupt(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(index_.path(), ": ", what));
}

absl::StatusOr<IndexedDataset> IndexedDataset::Open(const std::string& prefix) {
  SS_ASSIGN_OR_RETURN(ckpt::File index,
                      ckpt::File::OpenForRead(prefix + ".idx"));
  SS_ASSIGN_OR_RETURN(ckpt::File tokens,
                      ckpt::File::OpenForRead(prefix + ".bin"));
  IndexedDataset dataset(std::move(index), std::move(tokens));
  SS_RETURN_IF_ERROR(dataset.ReadHeader());
  SS_RETURN_IF_ERROR(dataset.CheckSequences());
  SS_RETURN_IF_ERROR(dataset.CheckDocuments());
  return dataset;
}

absl::Status IndexedDataset::ReadHeader() {
  SS_ASSIGN_OR_RETURN(const int64_t size_bytes, index_.Size());
  if (size_bytes < kIndexHeaderBytes) {
    return Corrupt(absl::StrCat("has ", size_bytes, " bytes, its header needs ",
                                kIndexHeaderBytes));
  }
  std::byte header[kIndexHeaderBytes];
  SS_RETURN_IF_ERROR(index_.ReadAt(0, header));
  if (std::memcmp(header, kIndexMagic.data(), kIndexMagic.size()) != 0) {
    return Corrupt("does not begin with MMIDIDX: no indexed dataset");
  }
  uint64_t version;
  uint64_t sequences;
  uint64_t document_entries;
  std::memcpy(&version, header + 9, 8);
  std::memcpy(&token_type_, header + 17, 1);
  std::memcpy(&sequences, header + 18, 8);
  std::memcpy(&document_entries, header + 26, 8);
  if (version != kIndexVersion) {
    return absl::UnimplementedError(absl::StrCat(
        index_.path(), ": version ", version, ", expected ", kIndexVersion));
  }
  if (TokenBytes(token_type_) == 0) {
    return absl::UnimplementedError(
        absl::StrCat(index_.path(), ": element type ", header[17],
                     ", expected an integer type: 1 to 5, or 8"));
  }
  const auto body_bytes = static_cast<uint64_t>(size_bytes - kIndexHeaderBytes);
  // Divided, not multiplied: the counts are whatever the file says.
  if (sequences > body_bytes / 12 || document_entries > body_bytes / 8 ||
      12 * sequences + 8 * document_entries > body_bytes) {
    return Corrupt(absl::StrCat("has ", size_bytes, " bytes, too few for ",
                                sequences, " sequences and ", document_entries,
                                " entries of the document index"));
  }
  const uint64_t rest = body_bytes - 12 * sequences - 8 * document_entries;
  if (rest > 0 && rest == sequences) {
    return absl::UnimplementedError(absl::StrCat(
        index_.path(), ": holds the modes of multimodal data, expected text"));
  }
  if (rest > 0) return Corrupt(absl::StrCat(rest, " bytes beyond its tables"));
  if (document_entries == 0) return Corrupt("an empty document index");
  num_sequences_ = static_cast<int64_t>(sequences);
  num_document_entries_ = static_cast<int64_t>(document_entries);
  return absl::OkStatus();
}

absl::Status IndexedDataset::CheckSequences() {
  const int64_t item_bytes = TokenBytes(token_type_);
  SS_ASSIGN_OR_RETURN(const int64_t tokens_bytes, tokens_.Size());
  std::vector<int32_t> lengths(kEntriesPerRead);
  std::vector<int64_t> offsets(kEntriesPerRead);
  for (int64_t first = 0; first < num_sequences_; first += kEntriesPerRead) {
    const int64_t count = std::min(kEntriesPerRead, num_sequences_ - first);
    SS_RETURN_IF_ERROR(ReadArray(index_, kIndexHeaderBytes + 4 * first,
                                 std::span(lengths).first(count)));
    SS_RETURN_IF_ERROR(
        ReadArray(index_, kIndexHeaderBytes + 4 * num_sequences_ + 8 * first,
                  std::span(offsets).first(count)));
    for (int64_t i = 0; i < count; ++i) {
      if (offsets[i] != num_tokens_ * item_bytes) {
        return Corrupt(absl::StrCat("sequence ", first + i, " lies at byte ",
                                    offsets[i], " of the tokens, expected ",
                                    num_tokens_ * item_bytes));
      }
      if (lengths[i] < 0) {
        return Corrupt(
            absl::StrCat("sequence ", first + i, " has length ", lengths[i]));
      }
      num_tokens_ += lengths[i];
      if (num_tokens_ > tokens_bytes / item_bytes) {
        return Corrupt(absl::StrCat("sequence ", first + i, " ends beyond the ",
                                    tokens_bytes, " bytes of ",
                                    tokens_.path()));
      }
    }
  }
  if (num_tokens_ * item_bytes == tokens_bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      tokens_.path(), ": has ", tokens_bytes, " bytes, its index needs ",
      num_tokens_ * item_bytes, ": not the tokens of this index"));
}

absl::Status IndexedDataset::CheckDocuments() const {
  std::vector<int64_t> starts(kEntriesPerRead);
  int64_t previous = 0;
  for (int64_t first = 0; first < num_document_entries_;
       first += kEntriesPerRead) {
    const int64_t count =
        std::min(kEntriesPerRead, num_document_entries_ - first);
    SS_RETURN_IF_ERROR(
        ReadArray(index_, kIndexHeaderBytes + 12 * num_sequences_ + 8 * first,
                  std::span(starts).first(count)));
    for (int64_t i = 0; i < count; ++i) {
      if (starts[i] < previous || (first + i == 0 && starts[i] != 0)) {
        return Corrupt(
            absl::StrCat("document ", first + i, " starts at sequence ",
                         starts[i], ", expected ", previous, " or more",
                         first + i == 0 ? ", and 0 to begin with" : ""));
      }
      previous = starts[i];
    }
  }
  if (previous == num_sequences_) return absl::OkStatus();
  return Corrupt(absl::StrCat("the document index ends with ", previous,
                              ", expected the ", num_sequences_, " sequences"));
}

absl::Status IndexedDataset::ReadTokens(int64_t begin, int64_t vocab_size,
                                        std::span<int32_t> tokens) const {
  SS_ASSIGN_OR_RETURN(const int64_t bad, ReadTyped(tokens_, token_type_, begin,
                                                   vocab_size, tokens));
  if (bad < 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(tokens_.path(), ": the token at position ", begin + bad,
                   " (byte ", (begin + bad) * TokenBytes(token_type_),
                   ") is outside the vocabulary of ", vocab_size,
                   "; check --vocab-size and the tokenizer of the data"));
}

absl::StatusOr<std::string> IndexedDataset::IndexDigest() const {
  SS_ASSIGN_OR_RETURN(const int64_t size_bytes, index_.Size());
  return DigestWindows(index_, size_bytes,
                       (size_bytes + kWindowBytes - 1) / kWindowBytes);
}

absl::StatusOr<std::string> IndexedDataset::TokensDigest() const {
  SS_ASSIGN_OR_RETURN(const int64_t size_bytes, tokens_.Size());
  return DigestWindows(
      tokens_, size_bytes,
      std::min(kNumWindows, (size_bytes + kWindowBytes - 1) / kWindowBytes));
}

}  // namespace shardshift::trainer
