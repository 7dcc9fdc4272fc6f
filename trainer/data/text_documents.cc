// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/text_documents.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "nlohmann/json.hpp"

namespace shardshift::trainer {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

bool IsBlank(absl::string_view line) {
  return absl::StripAsciiWhitespace(line).empty();
}

// The lines of a file, with their line ends.
class LineReader {
 public:
  static absl::StatusOr<LineReader> Open(const std::string& path) {
    SS_ASSIGN_OR_RETURN(ckpt::File file, ckpt::File::OpenForRead(path));
    SS_ASSIGN_OR_RETURN(const int64_t size_bytes, file.Size());
    return LineReader(std::move(file), size_bytes);
  }

  // False at the end of the file.
  absl::StatusOr<bool> Next(std::string& line) {
    line.clear();
    ++line_number_;
    for (;;) {
      const size_t end = buffer_.find('\n', next_);
      const size_t stop = end == std::string::npos ? buffer_.size() : end + 1;
      line.append(buffer_, next_, stop - next_);
      next_ = stop;
      if (std::ssize(line) > kMaxDocumentBytes) return TooLong();
      if (end != std::string::npos) return true;
      if (read_bytes_ == size_bytes_) return !line.empty();
      SS_RETURN_IF_ERROR(Refill());
    }
  }

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ", line ", line_number_, ": ", what));
  }

  absl::Status TooLong() const {
    return Error(absl::StrCat("longer than ", kMaxDocumentBytes,
                              " bytes; split it into documents"));
  }

  int64_t position_bytes() const {
    return read_bytes_ - static_cast<int64_t>(buffer_.size() - next_);
  }

 private:
  LineReader(ckpt::File file, int64_t size_bytes)
      : file_(std::move(file)), size_bytes_(size_bytes) {}

  absl::Status Refill() {
    buffer_.resize(std::min(kReadBytes, size_bytes_ - read_bytes_));
    next_ = 0;
    SS_RETURN_IF_ERROR(
        file_.ReadAt(read_bytes_, std::as_writable_bytes(std::span(buffer_))));
    read_bytes_ += std::ssize(buffer_);
    return absl::OkStatus();
  }

  ckpt::File file_;
  int64_t size_bytes_;
  int64_t read_bytes_ = 0;
  std::string buffer_;
  size_t next_ = 0;
  int64_t line_number_ = 0;
};

class JsonLinesReader : public DocumentReader {
 public:
  JsonLinesReader(LineReader lines, std::string key)
      : lines_(std::move(lines)), key_(std::move(key)) {}

  int64_t position_bytes() const override { return lines_.position_bytes(); }

  absl::StatusOr<bool> Next(std::string& text) override {
    do {
      SS_ASSIGN_OR_RETURN(const bool more, lines_.Next(line_));
      if (!more) return false;
    } while (IsBlank(line_));
    auto object = nlohmann::json::parse(line_, nullptr, false);
    if (!object.is_object()) {
      return lines_.Error(
          "no JSON object in UTF-8; plain text needs --split-on blank-lines");
    }
    const auto value = object.find(key_);
    if (value == object.end() || !value->is_string()) {
      return lines_.Error(absl::StrCat("no string \"", key_,
                                       "\" in the object; see --json-key"));
    }
    text = std::move(value->get_ref<std::string&>());
    return true;
  }

 private:
  LineReader lines_;
  const std::string key_;
  std::string line_;
};

class BlankLineReader : public DocumentReader {
 public:
  explicit BlankLineReader(LineReader lines) : lines_(std::move(lines)) {}

  int64_t position_bytes() const override { return lines_.position_bytes(); }

  absl::StatusOr<bool> Next(std::string& text) override {
    text.clear();
    for (;;) {
      SS_ASSIGN_OR_RETURN(const bool more, lines_.Next(line_));
      if (more && !IsBlank(line_)) {
        text += line_;
        if (std::ssize(text) > kMaxDocumentBytes) return lines_.TooLong();
      } else if (!text.empty()) {
        if (text.back() == '\n') text.pop_back();
        return true;
      } else if (!more) {
        return false;
      }
    }
  }

 private:
  LineReader lines_;
  std::string line_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DocumentReader>> OpenJsonLines(
    const std::string& path, const std::string& key) {
  SS_ASSIGN_OR_RETURN(LineReader lines, LineReader::Open(path));
  return std::make_unique<JsonLinesReader>(std::move(lines), key);
}

absl::StatusOr<std::unique_ptr<DocumentReader>> OpenBlankLineSeparated(
    const std::string& path) {
  SS_ASSIGN_OR_RETURN(LineReader lines, LineReader::Open(path));
  return std::make_unique<BlankLineReader>(std::move(lines));
}

}  // namespace shardshift::trainer
