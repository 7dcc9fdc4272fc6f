// SPDX-License-Identifier: Apache-2.0
#include "tools/layer_pattern.h"

#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace shardshift {
namespace {

// By layer, whether it has experts.
using Pattern = std::vector<bool>;

// sum: product ('+' product)*
// product: factor ('*' number)*
// factor: '[' bits ']' | '(' sum ')'
class PatternParser {
 public:
  // No pattern grows beyond `max` layers.
  PatternParser(absl::string_view text, int64_t max) : text_(text), max_(max) {}

  std::optional<Pattern> Parse() {
    std::optional<Pattern> pattern = Sum(/*depth=*/0);
    return text_.empty() ? pattern : std::nullopt;
  }

 private:
  static constexpr int kMaxDepth = 16;

  std::optional<Pattern> Sum(int depth) {
    std::optional<Pattern> sum = Product(depth);
    while (sum.has_value() && absl::ConsumePrefix(&text_, "+")) {
      const std::optional<Pattern> next = Product(depth);
      if (!next.has_value()) return std::nullopt;
      sum->insert(sum->end(), next->begin(), next->end());
      if (IsTooLong(*sum, 1)) return std::nullopt;
    }
    return sum;
  }

  std::optional<Pattern> Product(int depth) {
    std::optional<Pattern> product = Factor(depth);
    while (product.has_value() && absl::ConsumePrefix(&text_, "*")) {
      const std::optional<int64_t> times = Number();
      if (!times.has_value() || IsTooLong(*product, *times)) {
        return std::nullopt;
      }
      Pattern repeated;
      for (int64_t i = 0; i < *times; ++i) {
        repeated.insert(repeated.end(), product->begin(), product->end());
      }
      product = std::move(repeated);
    }
    return product;
  }

  std::optional<Pattern> Factor(int depth) {
    if (absl::ConsumePrefix(&text_, "[")) return Bits();
    if (depth == kMaxDepth || !absl::ConsumePrefix(&text_, "(")) {
      return std::nullopt;
    }
    std::optional<Pattern> inner = Sum(depth + 1);
    return absl::ConsumePrefix(&text_, ")") ? inner : std::nullopt;
  }

  std::optional<Pattern> Bits() {
    Pattern bits;
    do {
      if (absl::ConsumePrefix(&text_, "1")) {
        bits.push_back(true);
      } else if (absl::ConsumePrefix(&text_, "0")) {
        bits.push_back(false);
      } else {
        return std::nullopt;
      }
    } while (absl::ConsumePrefix(&text_, ","));
    if (!absl::ConsumePrefix(&text_, "]") || IsTooLong(bits, 1)) {
      return std::nullopt;
    }
    return bits;
  }

  std::optional<int64_t> Number() {
    size_t digits = 0;
    while (digits < text_.size() && absl::ascii_isdigit(text_[digits])) {
      ++digits;
    }
    int64_t number = 0;
    if (!absl::SimpleAtoi(text_.substr(0, digits), &number)) {
      return std::nullopt;
    }
    text_.remove_prefix(digits);
    return number;
  }

  bool IsTooLong(const Pattern& pattern, int64_t times) const {
    return times > max_ || static_cast<int64_t>(pattern.size()) * times > max_;
  }

  absl::string_view text_;
  const int64_t max_;
};

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseDenseLayers(absl::string_view text,
                                                      int64_t num_layers) {
  const std::string bare = absl::StrReplaceAll(text, {{" ", ""}});
  std::vector<int64_t> dense;
  if (int64_t every = 0; absl::SimpleAtoi(bare, &every)) {
    if (every < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--moe-layer-freq is ", every, ", expected 1 or more"));
    }
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      if (layer % every != 0) dense.push_back(layer);
    }
    return dense;
  }
  const std::optional<Pattern> pattern =
      PatternParser(bare, num_layers).Parse();
  if (!pattern.has_value() ||
      static_cast<int64_t>(pattern->size()) != num_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--moe-layer-freq is \"", text,
                     "\", expected a number, or a 0 or 1 for "
                     "each of ",
                     num_layers, " layers: [0,1,1,1] or [0]*1+[1]*3"));
  }
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (!(*pattern)[layer]) dense.push_back(layer);
  }
  return dense;
}

}  // namespace shardshift
