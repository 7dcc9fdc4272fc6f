// The text of --pipeline-model-parallel-layout.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/stages.h"

namespace shardshift::reshard {
namespace {

constexpr char kFlag[] = "--pipeline-model-parallel-layout";
// Of the text without repetitions: more layers than a model may have.
constexpr size_t kMaxLength = size_t{1} << 18;

// Writes repetitions out.
class Expander {
 public:
  explicit Expander(absl::string_view text) : text_(text) {}

  absl::StatusOr<std::string> Run() {
    SS_ASSIGN_OR_RETURN(std::string expanded, Sequence());
    if (at_ < text_.size()) return Refuse("unmatched ')'");
    return expanded;
  }

 private:
  absl::Status Refuse(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(kFlag, " \"", text_, "\": ", why, " at character ", at_));
  }

  // Up to the closing parenthesis that is not part of it, or the end.
  absl::StatusOr<std::string> Sequence() {
    std::string expanded;
    while (at_ < text_.size() && text_[at_] != ')') {
      SS_ASSIGN_OR_RETURN(const std::string item, Item());
      SS_ASSIGN_OR_RETURN(const int64_t times, Times());
      const size_t length = item.size() * static_cast<size_t>(times);
      if (expanded.size() + length > kMaxLength) {
        return Refuse("more layers than a model may have");
      }
      for (int64_t i = 0; i < times; ++i) expanded += item;
    }
    return expanded;
  }

  absl::StatusOr<std::string> Item() {
    const char c = text_[at_++];
    if (c == ',') return std::string();
    if (absl::StrContains("EtL|", c)) return std::string(1, c);
    if (c != '(' || in_group_) {
      --at_;
      return Refuse(absl::StrCat(
          "expected E, t, L, '|', ',' or a group in parentheses, found '",
          std::string(1, c), "'"));
    }
    in_group_ = true;
    SS_ASSIGN_OR_RETURN(std::string inner, Sequence());
    in_group_ = false;
    if (at_ == text_.size()) return Refuse("missing ')'");
    ++at_;
    return inner;
  }

  absl::StatusOr<int64_t> Times() {
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    const size_t begin = ++at_;
    while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) ++at_;
    int32_t times = 0;
    if (absl::SimpleAtoi(text_.substr(begin, at_ - begin), &times) &&
        times > 0) {
      return times;
    }
    return Refuse("expected a count above 0 after '*'");
  }

  absl::string_view text_;
  size_t at_ = 0;
  bool in_group_ = false;
};

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseStageLayout(absl::string_view text) {
  const absl::StatusOr<std::string> expanded = Expander(text).Run();
  if (!expanded.ok()) return expanded.status();
  absl::string_view layers = *expanded;
  if (!absl::ConsumePrefix(&layers, "E") ||
      !absl::ConsumeSuffix(&layers, "L") || absl::StrContains(layers, 'E') ||
      absl::StrContains(layers, 'L')) {
    return absl::InvalidArgumentError(absl::StrCat(
        kFlag, " \"", text,
        "\": expected one E, at the beginning, and one L, at the end"));
  }
  std::vector<int64_t> sizes;
  for (const absl::string_view stage : absl::StrSplit(layers, '|')) {
    sizes.push_back(static_cast<int64_t>(stage.size()));
  }
  return sizes;
}

}  // namespace shardshift::reshard
