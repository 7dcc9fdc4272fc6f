// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table.h"
#include "reshard/formats/tensor_bytes.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
// Of the format, but not of a checkpoint here.
constexpr const char* kSubByteDTypes[] = {"F4", "F6_E2M3", "F6_E3M2"};
constexpr const char* kOtherDTypes[] = {"F8_E4M3FNUZ", "F8_E5M2FNUZ"};

absl::Status CheckDType(absl::string_view name) {
  const auto is_name = [name](const char* other) { return name == other; };
  if (absl::c_any_of(kSubByteDTypes, is_name)) {
    return absl::UnimplementedError(
        absl::StrCat("dtype ", name,
                     " has elements of less than a byte, which are not "
                     "supported"));
  }
  if (absl::c_any_of(kOtherDTypes, is_name)) {
    return absl::UnimplementedError(
        absl::StrCat("dtype ", name, " is not supported"));
  }
  return absl::OkStatus();
}

// Takes the header's JSON. Each state allows few events; whatever else comes
// is refused, so that nothing nests deeper than it should.
class HeaderHandler : public JsonHandler {
 public:
  HeaderHandler(int64_t data_begin, int64_t data_bytes)
      : data_begin_(data_begin), data_bytes_(data_bytes) {}

  SafetensorsHeader TakeHeader() { return std::move(header_); }
  // What is wrong beyond the format.
  const absl::Status& unsupported() const { return unsupported_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool /*value*/) override { return Unexpected("a boolean"); }
  bool number_integer(int64_t /*value*/) override {
    return Unexpected("a negative number");
  }
  bool number_float(double /*value*/, const std::string& text) override {
    return Unexpected(absl::StrCat("the number ", Quoted(text),
                                   ", which is no 64-bit integer"));
  }

  bool number_unsigned(uint64_t value) override {
    if (state_ != State::kShape && state_ != State::kOffsets) {
      return Unexpected("a number");
    }
    if (value > std::numeric_limits<int64_t>::max()) {
      return Unexpected(absl::StrCat("the number ", value,
                                     ", which is too "
                                     "large"));
    }
    const auto number = static_cast<int64_t>(value);
    if (state_ == State::kOffsets) {
      if (num_offsets_ == 2) return Unexpected("a third offset");
      offsets_[num_offsets_++] = number;
    } else if (std::ssize(tensor_.shape) == ckpt::kMaxNdim) {
      return Unexpected(
          absl::StrCat("more than ", ckpt::kMaxNdim, " dimensions"));
    } else {
      tensor_.shape.push_back(number);
    }
    return true;
  }

  bool string(std::string& value) override {
    if (state_ == State::kMetadata) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (state_ != State::kTensor || field_ != Field::kDType) {
      return Unexpected("a string");
    }
    const auto dtype = ckpt::ParseDType(value);
    if (!dtype.ok()) {
      unsupported_ = Annotate(CheckDType(value), Where());
      return Refuse(absl::StrCat(Where(), " ", Quoted(value),
                                 " is no dtype of the format"));
    }
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_object(size_t /*size*/) override {
    if (state_ == State::kStart) {
      state_ = State::kNames;
    } else if (state_ == State::kNames) {
      state_ =
          key_ == kSafetensorsMetadataKey ? State::kMetadata : State::kTensor;
      return StartMember();
    } else {
      return Unexpected("an object");
    }
    return true;
  }

  bool key(std::string& value) override {
    if (state_ == State::kTensor) return TensorKey(value);
    if (state_ == State::kMetadata && header_.metadata.contains(value)) {
      return Refuse(absl::StrCat(kSafetensorsMetadataKey, " has the key ",
                                 Quoted(value), " twice"));
    }
    key_ = std::move(value);
    return true;
  }

  bool start_array(size_t /*size*/) override {
    if (state_ != State::kTensor || field_ == Field::kDType) {
      return Unexpected("an array");
    }
    state_ = field_ == Field::kShape ? State::kShape : State::kOffsets;
    return true;
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor && !FinishTensor()) return false;
    state_ = State::kNames;  // or the end, after which nothing comes
    return true;
  }

 private:
  enum class State { kStart, kNames, kMetadata, kTensor, kShape, kOffsets };
  enum Field { kDType, kShape, kOffsets };
  static constexpr std::array<const char*, 3> kFieldNames = {"dtype", "shape",
                                                             "data_offsets"};

  bool StartMember() {
    if (state_ == State::kMetadata) {
      if (!std::exchange(has_metadata_, true)) return true;
      return Refuse(absl::StrCat(kSafetensorsMetadataKey, " comes twice"));
    }
    tensor_ = {.name = std::move(key_), .shape = {}};
    seen_ = {};
    field_ = Field::kDType;
    num_offsets_ = 0;
    return true;
  }

  bool TensorKey(absl::string_view value) {
    const auto name = absl::c_find(kFieldNames, value);
    if (name == kFieldNames.end()) {
      return Refuse(absl::StrCat("tensor ", Quoted(tensor_.name),
                                 " has the key ", Quoted(value),
                                 ", which the format does not know"));
    }
    field_ = static_cast<Field>(name - kFieldNames.begin());
    if (!std::exchange(seen_[field_], true)) return true;
    return Refuse(absl::StrCat("tensor ", Quoted(tensor_.name), " has ",
                               kFieldNames[field_], " twice"));
  }

  bool FinishTensor() {
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (seen_[i]) continue;
      return Refuse(absl::StrCat("tensor ", Quoted(tensor_.name), " has no ",
                                 kFieldNames[i]));
    }
    if (const absl::Status placed = Place(); !placed.ok()) {
      return Refuse(absl::StrCat("tensor ", Quoted(tensor_.name), ": ",
                                 placed.message()));
    }
    header_.tensors.push_back(std::move(tensor_));
    return true;
  }

  absl::Status Place() {
    if (num_offsets_ != 2) {
      return absl::DataLossError(absl::StrCat("data_offsets has ", num_offsets_,
                                              " numbers, expected 2"));
    }
    const auto [begin, end] = offsets_;
    if (begin > end || end > data_bytes_) {
      return absl::DataLossError(absl::StrCat("data_offsets [", begin, ",", end,
                                              "] are not within the ",
                                              data_bytes_, " bytes of data"));
    }
    SS_ASSIGN_OR_RETURN(const int64_t bytes,
                        TensorBytes(tensor_.dtype, tensor_.shape));
    if (bytes != end - begin) {
      return absl::DataLossError(absl::StrCat(
          ckpt::Name(tensor_.dtype), " ", ckpt::ToString(tensor_.shape),
          " takes ", bytes, " bytes, but data_offsets [", begin, ",", end,
          "] span ", end - begin));
    }
    tensor_.begin = data_begin_ + begin;
    tensor_.end = data_begin_ + end;
    return absl::OkStatus();
  }

  std::string Where() const {
    switch (state_) {
      case State::kStart:
        return "the header";
      case State::kNames:
        return Quoted(key_);
      case State::kMetadata:
        return absl::StrCat(kSafetensorsMetadataKey, ": ", Quoted(key_));
      default:
        return absl::StrCat("tensor ", Quoted(tensor_.name), ": ",
                            kFieldNames[field_]);
    }
  }

  bool Unexpected(absl::string_view found) {
    return Refuse(
        absl::StrCat(Where(), " holds ", found, ", expected ", Expected()));
  }

  const char* Expected() const {
    switch (state_) {
      case State::kStart:
      case State::kNames:
        return "an object";
      case State::kMetadata:
        return "a string";
      case State::kTensor:
        return field_ == Field::kDType ? "a string" : "an array";
      case State::kShape:
        return "extents of 0 or more";
      case State::kOffsets:
        break;
    }
    return "two offsets of 0 or more";
  }

  const int64_t data_begin_;
  const int64_t data_bytes_;
  SafetensorsHeader header_;
  absl::Status unsupported_;
  std::string key_;
  // The tensor under way.
  SafetensorsTensor tensor_;
  std::array<int64_t, 2> offsets_ = {};
  size_t num_offsets_ = 0;
  Field field_ = Field::kDType;
  std::array<bool, 3> seen_ = {};
  bool has_metadata_ = false;
  State state_ = State::kStart;
};

absl::Status CheckNames(const std::vector<SafetensorsTensor>& tensors) {
  std::vector<absl::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) names.push_back(tensor.name);
  absl::c_sort(names);
  const auto twice = absl::c_adjacent_find(names);
  if (twice == names.end()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("tensor ", Quoted(*twice), " comes twice"));
}

// REQUIRES: ascending by begin and end.
absl::Status CheckCover(const std::vector<SafetensorsTensor>& tensors,
                        int64_t data_begin, int64_t data_end) {
  int64_t end = data_begin;
  absl::string_view before = "the beginning of the data";
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin != end) {
      return absl::DataLossError(absl::StrCat(
          "tensor ", Quoted(tensor.name), " begins ",
          tensor.begin < end ? "before the end of "
                             : "not at, but behind the end of ",
          end == data_begin ? std::string(before) : Quoted(before),
          tensor.begin < end ? ": they overlap" : ": there is a hole"));
    }
    end = tensor.end;
    before = tensor.name;
  }
  if (end == data_end) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(data_end - end, " bytes follow the last tensor"));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text,
                                                         int64_t data_begin,
                                                         int64_t data_bytes) {
  if (text.empty() || text.front() != '{') {
    return absl::DataLossError("the header does not begin with `{`");
  }
  HeaderHandler handler(data_begin, data_bytes);
  const absl::Status read = ReadJson(text, handler);
  SS_RETURN_IF_ERROR(handler.unsupported());
  SS_RETURN_IF_ERROR(Annotate(read, "header"));
  SafetensorsHeader header = handler.TakeHeader();
  SS_RETURN_IF_ERROR(CheckNames(header.tensors));
  absl::c_sort(header.tensors, [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  SS_RETURN_IF_ERROR(
      CheckCover(header.tensors, data_begin, data_begin + data_bytes));
  return header;
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const ckpt::File& file,
                                                        int64_t begin) {
  const auto read = [&file, begin]() -> absl::StatusOr<SafetensorsHeader> {
    SS_ASSIGN_OR_RETURN(const int64_t all_bytes, file.Size());
    const int64_t file_bytes = all_bytes - begin;
    if (file_bytes < kLengthBytes) {
      return absl::DataLossError(absl::StrCat("the file has ", file_bytes,
                                              " bytes, too few for a header"));
    }
    std::array<std::byte, kLengthBytes> length;
    SS_RETURN_IF_ERROR(file.ReadAt(begin, length));
    const uint64_t bytes = ckpt::Decoder(length).GetU64();
    if (bytes > kMaxSafetensorsHeaderBytes) {
      return absl::DataLossError(
          absl::StrCat("the header claims ", bytes, " bytes, more than the ",
                       kMaxSafetensorsHeaderBytes, " of the format"));
    }
    const auto header_bytes = static_cast<int64_t>(bytes);
    const int64_t data_begin = kLengthBytes + header_bytes;
    if (data_begin > file_bytes) {
      return absl::DataLossError(absl::StrCat(
          "the header claims ", header_bytes, " bytes, but the file has only ",
          file_bytes, "; it is cut off or no safetensors file"));
    }
    std::string text(bytes, '\0');
    SS_RETURN_IF_ERROR(file.ReadAt(begin + kLengthBytes,
                                   std::as_writable_bytes(std::span(text))));
    return ParseSafetensorsHeader(text, begin + data_begin,
                                  file_bytes - data_begin);
  };
  absl::StatusOr<SafetensorsHeader> header = read();
  if (!header.ok()) return Annotate(header.status(), file.path());
  return header;
}

}  // namespace shardshift::reshard
