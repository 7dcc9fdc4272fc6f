// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/zero_slices.h"

#include <algorithm>

#include "absl/status/status.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

// More elements than any file has, and few enough to be added up.
constexpr int64_t kMaxElements = int64_t{1} << 60;

absl::Status AddTo(int64_t& total, int64_t more) {
  if (more < 0 || more > kMaxElements - total) {
    return absl::DataLossError(
        "the parameters of a group have more elements than 2^60, or the gaps "
        "between them less than none");
  }
  total += more;
  return absl::OkStatus();
}

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

void AddSlice(const ZeroSlice& slice, int64_t size, int64_t rank,
              ZeroArray& array) {
  if (slice.first < slice.last || (size == 0 && rank == 0)) {
    array.slices.push_back(slice);
  }
}

}  // namespace

absl::StatusOr<ZeroArray> SliceJoined(std::span<const int64_t> sizes,
                                      std::span<const int64_t> gaps,
                                      int64_t ranks, int64_t rank) {
  int64_t total = 0;
  for (const int64_t size : sizes) SS_RETURN_IF_ERROR(AddTo(total, size));
  for (const int64_t gap : gaps) SS_RETURN_IF_ERROR(AddTo(total, gap));
  ZeroArray array;
  // Rounded up to a multiple of twice the ranks.
  array.size = CeilDiv(total, 2 * ranks) * 2;
  const int64_t begin = rank * array.size;
  array.used = std::clamp<int64_t>(total - begin, 0, array.size);
  int64_t offset = 0;  // of the parameter, in what all ranks have
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t first = std::clamp<int64_t>(begin - offset, 0, sizes[i]);
    const int64_t last =
        std::clamp<int64_t>(begin + array.size - offset, 0, sizes[i]);
    const int64_t place = first < last ? offset + first - begin : 0;
    AddSlice({i, first, last, place}, sizes[i], rank, array);
    offset += sizes[i] + (gaps.empty() ? 0 : gaps[i]);
  }
  return array;
}

absl::StatusOr<ZeroArray> SliceEach(std::span<const int64_t> sizes,
                                    int64_t ranks, int64_t rank) {
  ZeroArray array;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t part = CeilDiv(sizes[i], ranks);
    const int64_t first = std::min(rank * part, sizes[i]);
    const int64_t last = std::min(first + part, sizes[i]);
    AddSlice({i, first, last, array.size}, sizes[i], rank, array);
    SS_RETURN_IF_ERROR(AddTo(array.size, part));
  }
  array.used = array.size;
  return array;
}

}  // namespace shardshift::reshard
