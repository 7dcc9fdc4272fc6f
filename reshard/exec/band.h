// One tensor on its way from source fragments to target fragments, band by
// band: the geometry of CopyFiles, without files.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_BAND_H_
#define SHARDSHIFT_RESHARD_EXEC_BAND_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "reshard/layout/flat_buffer.h"
#include "reshard/plan/box_index.h"
#include "reshard/plan/plan.h"

namespace shardshift::reshard {

// A range of the elements of a fragment, in its row-major order.
struct FragmentRange {
  int64_t fragment = 0;  // index among the sources or the targets
  Range elements;
  // Where the first element lies; set by who provides the memory.
  std::byte* data = nullptr;
};

// Elements `elements` of a tensor, in its row-major order, and what of them
// is wanted: of every fragment one range. All lists ascend.
struct Band {
  Range elements;
  std::vector<FragmentRange> sources;
  std::vector<FragmentRange> targets;
  std::vector<int64_t> copies;  // of the plan, that have elements here
};

class BandPlan {
 public:
  // Of a tensor without elements.
  BandPlan() = default;

  // Errors: as PlanCopies.
  static absl::StatusOr<BandPlan> Create(ckpt::Shape shape,
                                         std::vector<ckpt::Box> sources,
                                         std::vector<ckpt::Box> targets);

  // The first element from `begin` on that a target wants; the number of
  // elements if there is none.
  int64_t NextWanted(int64_t begin) const;

  // Of max_elements elements from `begin` on, or up to the last.
  Band BandFrom(int64_t begin, int64_t max_elements) const;

  // Where an element goes; all in elements.
  struct Run {
    const std::byte* src;
    int64_t dst_offset;  // from the first element of the gathered range
    int64_t source;      // it comes from, by index,
    int64_t src_offset;  // and its place there
    int64_t count;
  };
  // The runs that fill elements `range` of target `target` from the memory of
  // the band's sources. REQUIRES: `range` lies within the band.
  void Gather(const Band& band, int64_t target, Range range, int64_t item_size,
              absl::FunctionRef<void(const Run&)> visit) const;

  // How many targets have begun and not ended, at most, as bands pass.
  int64_t MaxOpenTargets() const;

  int64_t num_copies() const { return std::ssize(copies_); }
  const ckpt::Shape& shape() const { return shape_; }
  std::span<const ckpt::Box> sources() const { return sources_; }
  std::span<const ckpt::Box> targets() const { return targets_; }

 private:
  ckpt::Shape shape_;
  std::vector<ckpt::Box> sources_;
  std::vector<ckpt::Box> targets_;
  std::vector<BoxCopy> copies_;  // by target
  // From the first to the last element of each, in the tensor's row-major
  // order.
  std::vector<Range> copy_hulls_;
  std::vector<Range> target_hulls_;
  BoxIndex copies_by_hull_;
  BoxIndex targets_by_hull_;
  std::vector<int64_t> hull_begins_;  // of targets with elements, ascending
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_BAND_H_
