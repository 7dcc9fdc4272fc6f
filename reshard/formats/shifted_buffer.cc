// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/shifted_buffer.h"

#include <algorithm>

#include "reshard/formats/flat_buckets.h"

namespace shardshift::reshard {

int64_t ShiftOf(const FlatBuffer& flat, int64_t parameter) {
  return flat.parameters[parameter].begin - CompactBegin(flat, parameter);
}

std::vector<ShiftedRun> FindShifted(const FlatBuffer& flat,
                                    const std::vector<bool>& is_stored,
                                    int64_t parameter) {
  const int64_t begin = CompactBegin(flat, parameter);
  const int64_t end = begin + flat.parameters[parameter].size();
  std::vector<ShiftedRun> runs;
  int64_t at = begin;
  // Reverse registration order is ascending buffer order.
  auto holder =
      std::partition_point(flat.parameters.rbegin(), flat.parameters.rend(),
                           [begin](const Range& p) { return p.end <= begin; });
  for (; holder != flat.parameters.rend() && holder->begin < end; ++holder) {
    const int64_t number = flat.parameters.rend() - holder - 1;
    const Range common = Intersect(*holder, {begin, end});
    if (!is_stored[number] || common.empty()) continue;
    if (at < common.begin) {
      runs.push_back({.elements = {at - begin, common.begin - begin}});
    }
    runs.push_back({.elements = {common.begin - begin, common.end - begin},
                    .holder = number,
                    .begin = common.begin - holder->begin});
    at = common.end;
  }
  if (at < end) runs.push_back({.elements = {at - begin, end - begin}});
  return runs;
}

}  // namespace shardshift::reshard
