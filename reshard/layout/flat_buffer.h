// Megatron's flat parameter buffer: where each parameter of a rank lies, how
// the buffer is cut into buckets, and which part of it a data-parallel rank
// owns under the distributed optimizer. Units: elements; ranges half-open.
// Source: distributed-optimizer.md 1.2 and 1.3
// (megatron/core/distributed/param_and_grad_buffer.py at core_v0.16.1).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_FLAT_BUFFER_H_
#define SHARDSHIFT_RESHARD_LAYOUT_FLAT_BUFFER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace shardshift::reshard {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const Range&) const = default;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

// The common part; empty() if there is none.
Range Intersect(const Range& a, const Range& b);

struct FlatParameter {
  int64_t num_elements = 0;
  bool shared_embedding = false;
};

struct FlatBufferOptions {
  int64_t data_ranks = 1;
  // Off: no alignment, no padding, one bucket, every rank owns all of it.
  bool distributed_optimizer = false;
  // A bucket closes once it holds this many elements; nullopt: one bucket (but
  // for shared embeddings).
  std::optional<int64_t> bucket_size = std::nullopt;
};

// Megatron's default for the first pipeline stage; later stages have none.
int64_t DefaultBucketSize(int64_t data_ranks);

struct FlatBuffer {
  struct Bucket {
    Range range;           // padded end
    int64_t unpadded = 0;  // elements before the end padding

    bool operator==(const Bucket&) const = default;
  };
  std::vector<Range> parameters;  // in registration order
  std::vector<Bucket> buckets;    // ascending, contiguous from 0
  int64_t num_elements = 0;
  int64_t shards = 1;  // pieces each bucket is cut into

  // The piece of every bucket that data-parallel rank `data_rank` owns.
  std::vector<Range> OwnedRanges(int64_t data_rank) const;
};

// Parameters are placed in reverse registration order.
FlatBuffer MakeFlatBuffer(std::span<const FlatParameter> parameters,
                          const FlatBufferOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_FLAT_BUFFER_H_
