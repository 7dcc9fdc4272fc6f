// A picture of a plan: how many bytes go from which part files of the source to
// which of the target.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_PLAN_PICTURE_H_
#define SHARDSHIFT_TOOLS_PLAN_PICTURE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/exec/copy_plan.h"
#include "reshard/formats/open_source.h"
#include "reshard/layout/layout.h"
#include "tools/picture.h"

namespace shardshift {

// Part files in at most 32 groups of neighbours, within a pipeline stage or of
// whole stages if the layout of their ranks is known.
class PartGroups {
 public:
  // `parts`, ascending, are all there are. A group without parts is none.
  PartGroups(const std::optional<reshard::Layout>& layout,
             std::span<const int64_t> parts);

  int64_t size() const { return static_cast<int64_t>(groups_.size()); }
  // Of a part. REQUIRES: it was among `parts`.
  int64_t GroupOf(int64_t part) const;
  // "part 3", or "stage 1: parts 128-255".
  const std::string& Label(int64_t group) const { return groups_[group].label; }

 private:
  struct Group {
    int64_t first = 0;  // number of a part
    std::string label;
  };
  std::vector<Group> groups_;
};

// A row for each group of source parts, a column for each of the target's.
// Errors: as reshard::DryRun.
absl::StatusOr<Picture> PlanPicture(const reshard::OpenedSource& opened,
                                    const reshard::Layout& layout,
                                    const reshard::CopyChoice& choice);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_PLAN_PICTURE_H_
