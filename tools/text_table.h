// Text for people: numbers of bytes, columns.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_TEXT_TABLE_H_
#define SHARDSHIFT_TOOLS_TEXT_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace shardshift {

// "12.3 MB", in powers of 1000.
std::string HumanBytes(int64_t bytes);

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

// The titles, then a line for each row, in columns as wide as they need to
// be. REQUIRES: each row has a cell for each column.
std::string FormatTable(const std::vector<Column>& columns,
                        const std::vector<std::vector<std::string>>& rows);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_TEXT_TABLE_H_
