// Regular expressions of Python that tell parameters by their names. They come
// from files that nobody vouches for, so matching takes a time linear in the
// pattern and the name, whatever they are.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_NAME_PATTERN_H_
#define SHARDSHIFT_RESHARD_FORMATS_NAME_PATTERN_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// Understands characters, escapes of punctuation, `.`, \d \w \s and their
// opposites, [classes], groups, `|`, `*`, `+`, `?`, `^` and `$`, of ASCII.
class NamePattern {
 public:
  // Errors: Unimplemented, with the pattern, for anything else; DataLoss for
  // what is no pattern.
  static absl::StatusOr<NamePattern> Parse(absl::string_view text);

  // As re.match: what matches begins where the name does, and may end anywhere.
  // REQUIRES: the name has printable ASCII only.
  bool Matches(absl::string_view name) const;

  // The one name that it matches, where the pattern says it word by word.
  std::optional<std::string> OnlyName() const;

 private:
  friend class NamePatternParser;
  using Chars = std::bitset<128>;
  enum class Op : uint8_t { kChars, kSplit, kJump, kBegin, kEnd };
  // Of a machine that is in several places at once. kSplit goes on at both
  // places, kJump at `first`; places are relative.
  struct Step {
    Op op = Op::kChars;
    int32_t first = 1;
    int32_t second = 1;
    Chars chars = {};
  };

  // Marks all places reached from `place` without a character; true if the
  // last one is.
  bool Reach(size_t place, size_t position, size_t size,
             std::vector<bool>& reached) const;

  std::vector<Step> steps_;
};

// A list of them, of which at most one is to match a name.
class NamePatterns {
 public:
  // Errors: as NamePattern::Parse; Unimplemented for too many.
  static absl::StatusOr<NamePatterns> Parse(
      const std::vector<std::string>& texts);

  // The number of the one that matches, if any does.
  // Errors: DataLoss if two do; Unimplemented for a name that has other than
  // printable ASCII, unless there are no patterns.
  absl::StatusOr<std::optional<size_t>> Find(const std::string& name) const;

  const std::string& text(size_t number) const { return texts_[number]; }

 private:
  std::vector<std::string> texts_;
  absl::flat_hash_map<std::string, size_t> by_name_;
  std::vector<std::pair<size_t, NamePattern>> patterns_;  // all others
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_NAME_PATTERN_H_
