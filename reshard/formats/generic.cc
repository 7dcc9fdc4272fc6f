// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/generic.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

constexpr absl::string_view kOptimizerPrefix = "optim.state.";
constexpr absl::string_view kWeightRole = "weight";

// Whether the part of a path that ends before `end` is empty or made of dots.
bool EndsOddPart(absl::string_view key, size_t end) {
  size_t begin = end;
  while (begin > 0 && key[begin - 1] != '/') --begin;
  const absl::string_view part = key.substr(begin, end - begin);
  return part.empty() || part == "." || part == "..";
}

// A slash stays where it nests: between parts that a path may have.
std::string Escape(absl::string_view key, bool nests) {
  std::string escaped;
  for (size_t i = 0; i < key.size(); ++i) {
    const char c = key[i];
    bool is_kept =
        absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '%';
    if (c == '/') {
      const size_t next = std::min(key.find('/', i + 1), key.size());
      is_kept = nests && !EndsOddPart(key, i) && !EndsOddPart(key, next);
    }
    if (is_kept) {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  // A name of dots alone.
  if (escaped.empty() || escaped == "." || escaped == "..") {
    std::string dots;
    for (size_t i = 0; i < escaped.size(); ++i) dots += "%2E";
    return dots.empty() ? "%" : dots;
  }
  return escaped;
}

std::string Unescape(absl::string_view text) {
  std::string key;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && absl::SimpleHexAtoi(text.substr(i + 1, 2), &value)) {
      key += static_cast<char>(value);
      i += 2;
    } else if (text[i] != '%') {
      key += text[i];
    }
  }
  return key;
}

}  // namespace

GenericName NameOfKey(absl::string_view key) {
  if (absl::StartsWith(key, kOptimizerPrefix)) {
    const absl::string_view rest = key.substr(kOptimizerPrefix.size());
    const size_t dot = rest.rfind('.');
    if (dot != absl::string_view::npos && dot > 0 && dot + 1 < rest.size() &&
        rest.substr(dot + 1) != kWeightRole) {
      return {Escape(rest.substr(0, dot), true),
              Escape(rest.substr(dot + 1), false)};
    }
  }
  return {Escape(key, true), std::string(kWeightRole)};
}

std::string KeyOfName(const GenericName& name) {
  if (name.role == kWeightRole) return Unescape(name.tensor);
  return absl::StrCat(kOptimizerPrefix, Unescape(name.tensor), ".",
                      Unescape(name.role));
}

absl::StatusOr<ckpt::ForeignFiles> GenericFiles(const std::string& path,
                                                const SourceTensors& source,
                                                int64_t step, std::string state,
                                                std::string record) {
  ckpt::ForeignFilesBuilder builder(path);
  AddFiles(source, builder);
  for (const SourceTensor& tensor : source.tensors) {
    GenericName name = NameOfKey(tensor.key);
    const ckpt::Tensor info = {std::move(name.tensor), std::move(name.role),
                               tensor.dtype, tensor.shape};
    for (const SourceChunk& chunk : tensor.chunks) {
      SS_RETURN_IF_ERROR(Annotate(
          builder.Add(info, chunk.box,
                      {chunk.file, chunk.offset_bytes, chunk.column_pitch}),
          absl::CHexEscape(tensor.key)));
    }
  }
  return builder.Build(step, std::move(state), std::move(record));
}

}  // namespace shardshift::reshard
