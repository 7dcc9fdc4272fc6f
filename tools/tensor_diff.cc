// SPDX-License-Identifier: Apache-2.0
#include "tools/tensor_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ckpt/core/dtype.h"
#include "ckpt/core/status_macros.h"

namespace shardshift {
namespace {

// Large enough that a block of payload is seldom fetched twice.
constexpr int64_t kChunkBytes = int64_t{32} << 20;

double AbsDifference(ckpt::DType dtype, const std::byte* a,
                     const std::byte* b) {
  const ckpt::DType component = ckpt::ComponentDType(dtype);
  const int64_t step = ckpt::ItemSize(component);
  double max = 0;
  for (int64_t i = 0; i < ckpt::ItemSize(dtype); i += step) {
    if (std::memcmp(a + i, b + i, static_cast<size_t>(step)) == 0) continue;
    const double difference = std::abs(ckpt::ToDouble(component, a + i) -
                                       ckpt::ToDouble(component, b + i));
    max = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                 : std::max(max, difference);
    if (std::isinf(max)) break;
  }
  return max;
}

// The index of the element at `position` of the dense image of `box`.
ckpt::Shape IndexAt(const ckpt::Box& box, int64_t position) {
  ckpt::Shape index = box.start;
  for (size_t d = index.size(); d-- > 0;) {
    index[d] += position % box.extent[d];
    position /= box.extent[d];
  }
  return index;
}

void CompareChunk(ckpt::DType dtype, const ckpt::Box& chunk,
                  const std::vector<std::byte>& a,
                  const std::vector<std::byte>& b, TensorDifference& found) {
  if (a == b) return;
  const int64_t step = ckpt::ItemSize(dtype);
  for (int64_t i = 0; i < ckpt::NumElements(chunk); ++i) {
    const std::byte* in_a = a.data() + i * step;
    const std::byte* in_b = b.data() + i * step;
    if (std::memcmp(in_a, in_b, static_cast<size_t>(step)) == 0) continue;
    if (found.num_differing++ == 0) found.first_index = IndexAt(chunk, i);
    found.max_abs_difference =
        std::max(found.max_abs_difference, AbsDifference(dtype, in_a, in_b));
  }
}

}  // namespace

absl::StatusOr<TensorDifference> DiffTensor(const ckpt::Reader& a,
                                            int64_t tensor_a,
                                            const ckpt::Reader& b,
                                            int64_t tensor_b) {
  const ckpt::Tensor& info = a.table().tensors[tensor_a];
  const int64_t item_size = ckpt::ItemSize(info.dtype);
  TensorDifference found;
  std::vector<std::byte> in_a;
  std::vector<std::byte> in_b;
  for (const ckpt::Box& chunk : ckpt::SplitRowMajor(ckpt::WholeBox(info.shape),
                                                    kChunkBytes / item_size)) {
    in_a.resize(ckpt::NumElements(chunk) * item_size);
    in_b.resize(in_a.size());
    SS_RETURN_IF_ERROR(a.ReadTensor(tensor_a, chunk, in_a.data()));
    SS_RETURN_IF_ERROR(b.ReadTensor(tensor_b, chunk, in_b.data()));
    CompareChunk(info.dtype, chunk, in_a, in_b, found);
  }
  return found;
}

}  // namespace shardshift
