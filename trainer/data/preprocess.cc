// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/preprocess.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "trainer/data/indexed_dataset_writer.h"
#include "trainer/data/text_documents.h"

namespace shardshift::trainer {
namespace {

constexpr int64_t kBytesBetweenProgress = 4 << 20;

absl::Status AddDocument(const std::string& text, bool append_eod,
                         IndexedDatasetWriter& writer) {
  if (!text.empty()) {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size() + 1);
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    if (append_eod) tokens.push_back(kEndOfDocumentToken);
    SS_RETURN_IF_ERROR(writer.AddSequence(tokens));
  }
  return writer.EndDocument();
}

absl::StatusOr<std::unique_ptr<DocumentReader>> OpenInput(
    const PreprocessOptions& options, const std::string& path) {
  return options.blank_lines ? OpenBlankLineSeparated(path)
                             : OpenJsonLines(path, options.json_key);
}

}  // namespace

absl::StatusOr<PreprocessReport> Preprocess(
    const PreprocessOptions& options,
    const std::function<void(int64_t bytes)>& progress) {
  const int64_t vocab_size = kByteVocabSize + (options.append_eod ? 1 : 0);
  SS_ASSIGN_OR_RETURN(const auto writer,
                      IndexedDatasetWriter::Create(options.output_prefix,
                                                   TokenTypeFor(vocab_size)));
  int64_t bytes_before = 0;
  int64_t bytes_reported = 0;
  std::string text;
  for (const std::string& path : options.inputs) {
    SS_ASSIGN_OR_RETURN(const auto documents, OpenInput(options, path));
    for (;;) {
      SS_ASSIGN_OR_RETURN(const bool more, documents->Next(text));
      if (!more) break;
      SS_RETURN_IF_ERROR(AddDocument(text, options.append_eod, *writer));
      const int64_t bytes = bytes_before + documents->position_bytes();
      if (bytes - bytes_reported >= kBytesBetweenProgress) {
        bytes_reported = bytes;
        progress(bytes);
      }
    }
    bytes_before += documents->position_bytes();
  }
  if (writer->num_tokens() == 0) {
    return absl::InvalidArgumentError("the input holds no text");
  }
  SS_RETURN_IF_ERROR(writer->Finish());
  return PreprocessReport{.documents = writer->num_documents(),
                          .tokens = writer->num_tokens(),
                          .vocab_size = vocab_size};
}

}  // namespace shardshift::trainer
