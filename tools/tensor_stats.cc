// SPDX-License-Identifier: Apache-2.0
#include "tools/tensor_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "ckpt/block_io.h"
#include "ckpt/core/box.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/worker_pool.h"

namespace shardshift {
namespace {

constexpr int kMantissaBits = 52;
constexpr int64_t kMinLog2 = -1074;
constexpr int64_t kMaxLog2 = 1023;
constexpr uint64_t kHiddenBit = uint64_t{1} << kMantissaBits;

// A finite number that is not 0: mantissa * 2^(log2 - 52).
struct Parts {
  int64_t log2;
  int64_t mantissa;  // of 53 bits
};

Parts PartsOf(double magnitude) {
  const auto bits = std::bit_cast<uint64_t>(magnitude);
  const auto exponent = static_cast<int64_t>(bits >> kMantissaBits);
  if (exponent > 0) {
    return {exponent - 1023,
            static_cast<int64_t>((bits & (kHiddenBit - 1)) | kHiddenBit)};
  }
  const int shift = kMantissaBits + 1 - static_cast<int>(std::bit_width(bits));
  return {-1022 - shift, static_cast<int64_t>(bits << shift)};
}

// The values of a block, in `buffer`.
absl::StatusOr<std::span<const std::byte>> ReadBlockValues(
    const ckpt::Reader& reader, int64_t fragment, int64_t block,
    ckpt::StagingBuffer& buffer) {
  const ckpt::Table& table = reader.table();
  const ckpt::Fragment& info = table.fragments[fragment];
  const int64_t item_size = ckpt::ItemSize(table.tensors[info.tensor].dtype);
  const ckpt::ElementRange range = ckpt::BlockElements(table, info, block);
  std::vector<ckpt::FragmentRead> reads;
  std::byte* next = buffer.bytes().data();
  for (ckpt::Box& box : ckpt::RowMajorRange(info.box, range.begin, range.end)) {
    reads.push_back({fragment, box, next, box});
    next += ckpt::NumElements(box) * item_size;
  }
  SS_RETURN_IF_ERROR(reader.Read(reads));
  return buffer.bytes().first(
      static_cast<size_t>((range.end - range.begin) * item_size));
}

}  // namespace

ValueSums::ValueSums()
    : min_(std::numeric_limits<double>::infinity()),
      max_(-min_),
      magnitudes_(kMaxLog2 - kMinLog2 + 1) {}

void ValueSums::Add(ckpt::DType dtype, std::span<const std::byte> image) {
  const ckpt::DType component = ckpt::ComponentDType(dtype);
  const auto step = static_cast<size_t>(ckpt::ItemSize(component));
  for (size_t i = 0; i < image.size(); i += step) {
    Add(ckpt::ToDouble(component, &image[i]));
  }
}

void ValueSums::Add(double value) {
  if (std::isnan(value)) {
    ++num_nan_;
    return;
  }
  if (std::isinf(value)) {
    ++num_infinite_;
    return;
  }
  ++num_finite_;
  if (value == 0) {
    value = 0;  // -0.0 too, lest the order of the two decide
    ++num_zero_;
  } else {
    const Parts parts = PartsOf(std::abs(value));
    Magnitude& magnitude = magnitudes_[parts.log2 - kMinLog2];
    ++magnitude.count;
    magnitude.sum += value < 0 ? -parts.mantissa : parts.mantissa;
    const auto leading = static_cast<uint64_t>(parts.mantissa) >> 21;
    magnitude.squares += leading * leading;
  }
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
}

void ValueSums::Add(const ValueSums& other) {
  num_finite_ += other.num_finite_;
  num_nan_ += other.num_nan_;
  num_infinite_ += other.num_infinite_;
  num_zero_ += other.num_zero_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  for (size_t i = 0; i < magnitudes_.size(); ++i) {
    magnitudes_[i].count += other.magnitudes_[i].count;
    magnitudes_[i].sum += other.magnitudes_[i].sum;
    magnitudes_[i].squares += other.magnitudes_[i].squares;
  }
}

ValueStats ValueSums::Stats() const {
  ValueStats stats = {.num_finite = num_finite_,
                      .num_nan = num_nan_,
                      .num_infinite = num_infinite_,
                      .num_zero = num_zero_};
  if (num_finite_ == 0) return stats;
  stats.min = min_;
  stats.max = max_;
  for (size_t i = 0; i < magnitudes_.size(); ++i) {
    const int64_t count = magnitudes_[i].count;
    if (count == 0) continue;
    stats.histogram.push_back({static_cast<int64_t>(i) + kMinLog2, count});
  }
  if (stats.histogram.empty()) return stats;
  // In units of the largest power of two, so that no square overflows.
  const int64_t top = stats.histogram.back().log2;
  double sum = 0;
  double squares = 0;
  for (const ValueStats::Bucket& bucket : stats.histogram) {
    const Magnitude& magnitude = magnitudes_[bucket.log2 - kMinLog2];
    const auto below_top = static_cast<int>(bucket.log2 - top);
    sum += std::ldexp(static_cast<double>(magnitude.sum), below_top);
    squares +=
        std::ldexp(static_cast<double>(magnitude.squares), 2 * below_top);
  }
  const auto count = static_cast<double>(num_finite_);
  stats.mean = std::ldexp(sum / count, static_cast<int>(top) - kMantissaBits);
  stats.rms =
      std::ldexp(std::sqrt(squares / count), static_cast<int>(top) - 31);
  return stats;
}

absl::StatusOr<ValueStats> StatsOfTensor(
    const ckpt::Reader& reader, int64_t tensor,
    absl::FunctionRef<void(int64_t num_bytes)> on_bytes) {
  struct Task {
    int64_t fragment;
    int64_t block;
  };
  std::vector<Task> tasks;
  for (int64_t f = reader.FirstFragment(tensor);
       f < reader.FirstFragment(tensor + 1); ++f) {
    const auto num_blocks =
        static_cast<int64_t>(reader.table().fragments[f].blocks.size());
    for (int64_t b = 0; b < num_blocks; ++b) tasks.push_back({f, b});
  }
  const ckpt::DType dtype = reader.table().tensors[tensor].dtype;
  std::mutex mutex;
  ValueSums sums;
  SS_RETURN_IF_ERROR(ckpt::WorkerPool::Default().Run(
      static_cast<int64_t>(tasks.size()), [&](int64_t t) -> absl::Status {
        SS_ASSIGN_OR_RETURN(ckpt::StagingBuffer buffer,
                            ckpt::StagingBuffer::Take());
        SS_ASSIGN_OR_RETURN(
            const auto values,
            ReadBlockValues(reader, tasks[t].fragment, tasks[t].block, buffer));
        ValueSums of_block;
        of_block.Add(dtype, values);
        const std::lock_guard lock(mutex);
        sums.Add(of_block);
        on_bytes(static_cast<int64_t>(values.size()));
        return absl::OkStatus();
      }));
  return sums.Stats();
}

}  // namespace shardshift
