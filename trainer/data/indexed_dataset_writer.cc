// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/indexed_dataset_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"

namespace shardshift::trainer {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int32_t kEndOfDocument = -1;

}  // namespace

// Appends to a new file through a buffer.
class IndexedDatasetWriter::Stream {
 public:
  static absl::StatusOr<std::unique_ptr<Stream>> Create(
      const std::string& path) {
    // A leftover of a run that was killed.
    SS_RETURN_IF_ERROR(ckpt::RemoveTree(path));
    SS_ASSIGN_OR_RETURN(ckpt::File file, ckpt::File::Create(path));
    return std::make_unique<Stream>(std::move(file));
  }

  explicit Stream(ckpt::File file) : file_(std::move(file)) {}

  absl::Status Append(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
  }

  template <typename T>
  absl::Status AppendValue(T value) {
    return Append(std::as_bytes(std::span(&value, 1)));
  }

  absl::Status Flush() {
    SS_RETURN_IF_ERROR(file_.WriteAt(size_bytes_, buffer_));
    size_bytes_ += std::ssize(buffer_);
    buffer_.clear();
    return absl::OkStatus();
  }

  // REQUIRES: flushed.
  const ckpt::File& file() const { return file_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  ckpt::File file_;
  std::vector<std::byte> buffer_;
  int64_t size_bytes_ = 0;
};

IndexedDatasetWriter::IndexedDatasetWriter(std::string prefix,
                                           TokenType token_type)
    : prefix_(std::move(prefix)), token_type_(token_type) {}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  for (const char* suffix : {".bin", ".idx", ".marks"}) {
    ckpt::RemoveTree(prefix_ + suffix + ".partial").IgnoreError();
  }
}

absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>>
IndexedDatasetWriter::Create(const std::string& prefix, TokenType token_type) {
  for (const char* suffix : {".bin", ".idx"}) {
    SS_ASSIGN_OR_RETURN(const bool exists, ckpt::Exists(prefix + suffix));
    if (exists) {
      return absl::AlreadyExistsError(absl::StrCat(
          prefix, suffix, " exists; remove it or take another prefix"));
    }
  }
  std::unique_ptr<IndexedDatasetWriter> writer(
      new IndexedDatasetWriter(prefix, token_type));
  SS_ASSIGN_OR_RETURN(writer->tokens_, Stream::Create(prefix + ".bin.partial"));
  SS_ASSIGN_OR_RETURN(writer->marks_,
                      Stream::Create(prefix + ".marks.partial"));
  return writer;
}

absl::Status IndexedDatasetWriter::AddSequence(
    std::span<const int32_t> tokens) {
  const int64_t item_bytes = TokenBytes(token_type_);
  std::vector<std::byte> bytes(tokens.size() * item_bytes);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t wide = tokens[i];
    std::memcpy(bytes.data() + i * item_bytes, &wide, item_bytes);
  }
  SS_RETURN_IF_ERROR(tokens_->Append(bytes));
  num_tokens_ += std::ssize(tokens);
  ++num_sequences_;
  return marks_->AppendValue(static_cast<int32_t>(tokens.size()));
}

absl::Status IndexedDatasetWriter::EndDocument() {
  ++num_documents_;
  return marks_->AppendValue(kEndOfDocument);
}

template <typename Visit>
absl::Status IndexedDatasetWriter::ForEachMark(Visit visit) {
  std::vector<int32_t> marks(kBufferBytes / sizeof(int32_t));
  int64_t offset_bytes = 0;
  while (offset_bytes < marks_->size_bytes()) {
    marks.resize(std::min<int64_t>(std::ssize(marks),
                                   (marks_->size_bytes() - offset_bytes) / 4));
    SS_RETURN_IF_ERROR(marks_->file().ReadAt(
        offset_bytes, std::as_writable_bytes(std::span(marks))));
    for (const int32_t mark : marks) SS_RETURN_IF_ERROR(visit(mark));
    offset_bytes += 4 * std::ssize(marks);
  }
  return absl::OkStatus();
}

absl::Status IndexedDatasetWriter::WriteIndex() {
  SS_ASSIGN_OR_RETURN(const auto index,
                      Stream::Create(prefix_ + ".idx.partial"));
  SS_RETURN_IF_ERROR(index->Append(
      std::as_bytes(std::span(kIndexMagic.data(), kIndexMagic.size()))));
  SS_RETURN_IF_ERROR(index->AppendValue(kIndexVersion));
  SS_RETURN_IF_ERROR(index->AppendValue(token_type_));
  SS_RETURN_IF_ERROR(index->AppendValue(num_sequences_));
  SS_RETURN_IF_ERROR(index->AppendValue(num_documents_ + 1));
  SS_RETURN_IF_ERROR(ForEachMark([&](int32_t mark) {
    return mark == kEndOfDocument ? absl::OkStatus() : index->AppendValue(mark);
  }));
  int64_t offset_bytes = 0;
  SS_RETURN_IF_ERROR(ForEachMark([&](int32_t mark) {
    if (mark == kEndOfDocument) return absl::OkStatus();
    const int64_t mine = offset_bytes;
    offset_bytes += mark * TokenBytes(token_type_);
    return index->AppendValue(mine);
  }));
  int64_t sequence = 0;
  SS_RETURN_IF_ERROR(index->AppendValue(sequence));
  SS_RETURN_IF_ERROR(ForEachMark([&](int32_t mark) {
    if (mark == kEndOfDocument) return index->AppendValue(sequence);
    ++sequence;
    return absl::OkStatus();
  }));
  SS_RETURN_IF_ERROR(index->Flush());
  return index->file().Sync();
}

absl::Status IndexedDatasetWriter::Finish() {
  SS_RETURN_IF_ERROR(tokens_->Flush());
  SS_RETURN_IF_ERROR(tokens_->file().Sync());
  SS_RETURN_IF_ERROR(marks_->Flush());
  SS_RETURN_IF_ERROR(WriteIndex());
  // The index last: without it there is no dataset.
  SS_RETURN_IF_ERROR(
      ckpt::RenameNoReplace(prefix_ + ".bin.partial", prefix_ + ".bin"));
  return ckpt::RenameNoReplace(prefix_ + ".idx.partial", prefix_ + ".idx");
}

}  // namespace shardshift::trainer
