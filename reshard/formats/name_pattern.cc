// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/name_pattern.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

constexpr size_t kMaxLength = 1024;
constexpr size_t kMaxPatterns = 1024;  // that are no plain names
constexpr absl::string_view kQuantifiers = "*+?";

bool IsPrintable(char c) {
  return absl::ascii_isprint(static_cast<unsigned char>(c));
}

}  // namespace

// Reads from the left, and keeps the groups that are open.
class NamePatternParser {
 public:
  explicit NamePatternParser(absl::string_view text)
      : text_(text), rest_(text) {}

  absl::StatusOr<NamePattern> Parse() {
    if (text_.size() > kMaxLength) return Unknown("more than 1024 characters");
    if (!std::all_of(text_.begin(), text_.end(), IsPrintable)) {
      return Unknown("other than printable ASCII");
    }
    groups_.push_back({});
    while (!rest_.empty()) SS_RETURN_IF_ERROR(ParseNext());
    if (groups_.size() != 1) return Bad("a group that is not closed");
    CloseAlternatives();
    return std::move(pattern_);
  }

 private:
  using Chars = NamePattern::Chars;
  using Op = NamePattern::Op;

  struct Group {
    size_t begin = 0;
    size_t alternative = 0;          // where the last one begins
    std::vector<size_t> jumps = {};  // from earlier ones to the end
  };

  absl::Status Unknown(absl::string_view what) const {
    return absl::UnimplementedError(
        absl::StrCat("the pattern \"", absl::CHexEscape(text_), "\" has ", what,
                     ", which is not understood"));
  }
  absl::Status Bad(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(
        "the pattern \"", absl::CHexEscape(text_), "\" has ", what));
  }

  char Take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  bool TakeIf(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  size_t size() const { return pattern_.steps_.size(); }
  void Add(Op op) { pattern_.steps_.push_back({.op = op}); }
  void AddChars(const Chars& chars) {
    pattern_.steps_.push_back({.op = Op::kChars, .chars = chars});
  }
  void SplitAt(size_t place, int32_t other) {
    pattern_.steps_.insert(
        pattern_.steps_.begin() + static_cast<int64_t>(place),
        {.op = Op::kSplit, .second = other});
  }

  absl::Status ParseNext() {
    const size_t begin = size();
    const char c = Take();
    switch (c) {
      case '^':
      case '$':
        Add(c == '^' ? Op::kBegin : Op::kEnd);
        return NoQuantifier();
      case '|':
        AddAlternative();
        return NoQuantifier();
      case '(':
        return OpenGroup();
      case ')':
        return CloseGroup();
      case '[': {
        SS_ASSIGN_OR_RETURN(const Chars chars, ParseClass());
        AddChars(chars);
        break;
      }
      case '\\': {
        SS_ASSIGN_OR_RETURN(const Chars chars, ParseEscape());
        AddChars(chars);
        break;
      }
      case '.':
        AddChars(Chars().set());
        break;
      case '*':
      case '+':
      case '?':
        return Bad("nothing to repeat");
      case '{':
        return Unknown("{");
      default:
        AddChars(Only(c));
    }
    return ParseQuantifier(begin);
  }

  static Chars Only(char c) { return Chars().set(static_cast<size_t>(c)); }

  absl::Status NoQuantifier() const {
    if (!rest_.empty() && kQuantifiers.find(rest_.front()) != rest_.npos) {
      return Bad("nothing to repeat");
    }
    return absl::OkStatus();
  }

  // Of the steps from `begin` on. That it may be lazy changes no match.
  absl::Status ParseQuantifier(size_t begin) {
    if (!rest_.empty() && rest_.front() == '{') return Unknown("{");
    const auto length = static_cast<int32_t>(size() - begin);
    if (TakeIf('*')) {
      SplitAt(begin, length + 2);
      pattern_.steps_.push_back({.op = Op::kJump, .first = -length - 1});
    } else if (TakeIf('+')) {
      pattern_.steps_.push_back({.op = Op::kSplit, .second = -length});
    } else if (TakeIf('?')) {
      SplitAt(begin, length + 1);
    } else {
      return absl::OkStatus();
    }
    TakeIf('?');
    return NoQuantifier();
  }

  absl::Status OpenGroup() {
    if (TakeIf('?') && !TakeIf(':')) return Unknown("(?");
    groups_.push_back({.begin = size(), .alternative = size()});
    return NoQuantifier();
  }

  absl::Status CloseGroup() {
    if (groups_.size() == 1) return Bad("a group that is not opened");
    CloseAlternatives();
    const size_t begin = groups_.back().begin;
    groups_.pop_back();
    return ParseQuantifier(begin);
  }

  void AddAlternative() {
    Group& group = groups_.back();
    SplitAt(group.alternative,
            static_cast<int32_t>(size() - group.alternative) + 2);
    group.jumps.push_back(size());
    Add(Op::kJump);
    group.alternative = size();
  }

  void CloseAlternatives() {
    for (const size_t jump : groups_.back().jumps) {
      pattern_.steps_[jump].first = static_cast<int32_t>(size() - jump);
    }
  }

  absl::StatusOr<Chars> ParseEscape() {
    if (rest_.empty()) return Bad("nothing after \\");
    const char c = Take();
    Chars chars;
    for (size_t i = 0; i < chars.size(); ++i) {
      const auto byte = static_cast<unsigned char>(i);
      const char kind = absl::ascii_tolower(static_cast<unsigned char>(c));
      chars[i] = kind == 'd'   ? absl::ascii_isdigit(byte)
                 : kind == 's' ? absl::ascii_isspace(byte)
                               : absl::ascii_isalnum(byte) || i == '_';
    }
    if (c == 'd' || c == 's' || c == 'w') return chars;
    if (c == 'D' || c == 'S' || c == 'W') return ~chars;
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      return Unknown(absl::StrCat("\\", absl::string_view(&c, 1)));
    }
    return Only(c);
  }

  absl::StatusOr<Chars> ParseClass() {
    const bool is_negated = TakeIf('^');
    Chars chars;
    bool is_first = true;
    while (!rest_.empty() && (is_first || rest_.front() != ']')) {
      is_first = false;
      const char c = Take();
      if (c == '\\') {
        SS_ASSIGN_OR_RETURN(const Chars escaped, ParseEscape());
        chars |= escaped;
        if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
          return Unknown("a range from an escape");
        }
        continue;
      }
      if (c == '[') return Unknown("[ in a class");
      if (rest_.size() < 2 || rest_[0] != '-' || rest_[1] == ']') {
        chars |= Only(c);
        continue;
      }
      rest_.remove_prefix(1);
      const char last = Take();
      if (last == '\\' || last == '[') return Unknown("a range to an escape");
      if (last < c) return Bad("a range from the last to the first");
      for (char in = c; in <= last; ++in) chars |= Only(in);
    }
    if (!TakeIf(']')) return Bad("a class that is not closed");
    return is_negated ? ~chars : chars;
  }

  const absl::string_view text_;
  absl::string_view rest_;
  NamePattern pattern_;
  std::vector<Group> groups_;
};

absl::StatusOr<NamePattern> NamePattern::Parse(absl::string_view text) {
  return NamePatternParser(text).Parse();
}

bool NamePattern::Reach(size_t place, size_t position, size_t size,
                        std::vector<bool>& reached) const {
  std::vector<size_t> places = {place};
  while (!places.empty()) {
    const size_t at = places.back();
    places.pop_back();
    if (at == steps_.size()) return true;
    if (reached[at]) continue;
    reached[at] = true;
    const Step& step = steps_[at];
    if (step.op == Op::kChars) continue;
    if (step.op == Op::kBegin && position != 0) continue;
    if (step.op == Op::kEnd && position != size) continue;
    places.push_back(at + step.first);
    if (step.op == Op::kSplit) places.push_back(at + step.second);
  }
  return false;
}

bool NamePattern::Matches(absl::string_view name) const {
  std::vector<bool> reached(steps_.size());
  if (Reach(0, 0, name.size(), reached)) return true;
  for (size_t i = 0; i < name.size(); ++i) {
    std::vector<bool> next(steps_.size());
    bool goes_on = false;
    for (size_t at = 0; at < steps_.size(); ++at) {
      if (!reached[at] || steps_[at].op != Op::kChars ||
          !steps_[at].chars[static_cast<unsigned char>(name[i]) & 0x7f]) {
        continue;
      }
      goes_on = true;
      if (Reach(at + 1, i + 1, name.size(), next)) return true;
    }
    if (!goes_on) return false;
    reached = std::move(next);
  }
  return false;
}

std::optional<std::string> NamePattern::OnlyName() const {
  if (steps_.empty() || steps_.back().op != Op::kEnd) return std::nullopt;
  std::string name;
  for (size_t i = 0; i + 1 < steps_.size(); ++i) {
    const Step& step = steps_[i];
    if (i == 0 && step.op == Op::kBegin) continue;
    if (step.op != Op::kChars || step.chars.count() != 1) return std::nullopt;
    for (size_t c = 0; c < step.chars.size(); ++c) {
      if (step.chars[c]) name += static_cast<char>(c);
    }
  }
  return name;
}

absl::StatusOr<NamePatterns> NamePatterns::Parse(
    const std::vector<std::string>& texts) {
  NamePatterns patterns;
  for (const std::string& text : texts) {
    SS_ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Parse(text));
    const size_t number = patterns.texts_.size();
    patterns.texts_.push_back(text);
    if (std::optional<std::string> name = pattern.OnlyName();
        name.has_value()) {
      // The same one twice is no second opinion.
      patterns.by_name_.try_emplace(*std::move(name), number);
    } else if (patterns.patterns_.size() == kMaxPatterns) {
      return absl::UnimplementedError(
          absl::StrCat("a list of more than ", kMaxPatterns, " patterns"));
    } else {
      patterns.patterns_.emplace_back(number, std::move(pattern));
    }
  }
  return patterns;
}

absl::StatusOr<std::optional<size_t>> NamePatterns::Find(
    const std::string& name) const {
  std::optional<size_t> found;
  if (texts_.empty()) return found;
  if (!std::all_of(name.begin(), name.end(), IsPrintable)) {
    return absl::UnimplementedError(
        absl::StrCat("the name \"", absl::CHexEscape(name),
                     "\" has other than printable ASCII, and patterns are to "
                     "tell what it is"));
  }
  if (const auto it = by_name_.find(name); it != by_name_.end()) {
    found = it->second;
  }
  for (const auto& [number, pattern] : patterns_) {
    if (!pattern.Matches(name)) continue;
    if (found.has_value()) {
      return absl::DataLossError(
          absl::StrCat(name, " matches the patterns \"", texts_[*found],
                       "\" and \"", texts_[number], "\", expected one"));
    }
    found = number;
  }
  return found;
}

}  // namespace shardshift::reshard
