// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/flat_buffer.h"

#include <algorithm>
#include <numeric>

namespace shardshift::reshard {
namespace {

// Starts of parameters, and ends of buckets, are multiples of these.
constexpr int64_t kStartAlignment = 64;
constexpr int64_t kBucketAlignment = 128;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

FlatBuffer MakeReplicatedBuffer(std::span<const FlatParameter> parameters) {
  FlatBuffer buffer;
  buffer.parameters.resize(parameters.size());
  int64_t start = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    buffer.parameters[i] = {start, start + parameters[i].num_elements};
    start = buffer.parameters[i].end;
  }
  if (start > 0) buffer.buckets.push_back({{0, start}, start});
  buffer.num_elements = start;
  return buffer;
}

}  // namespace

Range Intersect(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

int64_t DefaultBucketSize(int64_t data_ranks) {
  return std::max(int64_t{40'000'000}, 1'000'000 * data_ranks);
}

FlatBuffer MakeFlatBuffer(std::span<const FlatParameter> parameters,
                          const FlatBufferOptions& options) {
  if (!options.distributed_optimizer) return MakeReplicatedBuffer(parameters);

  const int64_t divisor = std::lcm(options.data_ranks, kBucketAlignment);
  FlatBuffer buffer;
  buffer.shards = options.data_ranks;
  buffer.parameters.resize(parameters.size());
  int64_t bucket_start = 0;
  int64_t start = 0;
  bool bucket_empty = true;
  const auto close_bucket = [&](int64_t end) {
    const int64_t padded_end = RoundUp(end, divisor);
    buffer.buckets.push_back({{bucket_start, padded_end}, end - bucket_start});
    bucket_start = start = padded_end;
    bucket_empty = true;
  };
  for (size_t i = parameters.size(); i-- > 0;) {
    const FlatParameter& parameter = parameters[i];
    start = RoundUp(start, kStartAlignment);
    if (parameter.shared_embedding && !bucket_empty) close_bucket(start);
    const int64_t end = start + parameter.num_elements;
    buffer.parameters[i] = {start, end};
    bucket_empty = false;
    const bool full = options.bucket_size.has_value() &&
                      end - bucket_start >= *options.bucket_size;
    if (full || parameter.shared_embedding) {
      close_bucket(end);
    } else {
      start = end;
    }
  }
  if (!bucket_empty) close_bucket(start);
  buffer.num_elements = bucket_start;
  return buffer;
}

std::vector<Range> FlatBuffer::OwnedRanges(int64_t data_rank) const {
  std::vector<Range> owned;
  owned.reserve(buckets.size());
  const int64_t piece = shards == 1 ? 0 : data_rank;
  for (const Bucket& bucket : buckets) {
    const int64_t size = bucket.range.size() / shards;
    const int64_t begin = bucket.range.begin + piece * size;
    owned.push_back({begin, begin + size});
  }
  return owned;
}

}  // namespace shardshift::reshard
