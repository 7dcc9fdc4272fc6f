// SPDX-License-Identifier: Apache-2.0
#include "tools/text_table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace shardshift {

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
