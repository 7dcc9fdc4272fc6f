// SPDX-License-Identifier: Apache-2.0
#include "tools/text_table.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shardshift {

std::string HumanBytes(int64_t bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  // 999.95 and above would print as 1000.0.
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B")
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatTable(const std::vector<Column>& columns,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> titles;
  titles.reserve(columns.size());
  for (const Column& column : columns) titles.push_back(column.title);
  std::vector<const std::vector<std::string>*> lines = {&titles};
  for (const std::vector<std::string>& row : rows) lines.push_back(&row);
  std::vector<size_t> widths(columns.size());
  for (const auto* line : lines) {
    for (size_t c = 0; c < columns.size(); ++c) {
      widths[c] = std::max(widths[c], (*line)[c].size());
    }
  }
  std::string table;
  for (const auto* line : lines) {
    std::string text;
    for (size_t c = 0; c < columns.size(); ++c) {
      const std::string& cell = (*line)[c];
      const std::string space(widths[c] - cell.size(), ' ');
      const bool is_left = columns[c].align == Align::kLeft;
      absl::StrAppend(&text, c == 0 ? "" : "  ", is_left ? cell : space,
                      is_left ? space : cell);
    }
    absl::StripTrailingAsciiWhitespace(&text);
    absl::StrAppend(&table, text, "\n");
  }
  return table;
}

}  // namespace shardshift
