// What the values of a tensor are like.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_TENSOR_STATS_H_
#define SHARDSHIFT_TOOLS_TENSOR_STATS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ckpt/core/dtype.h"
#include "ckpt/reader.h"

namespace shardshift {

// Of a multiset of numbers. Minimum, maximum, mean and root mean square are of
// the finite ones, and 0 if there are none.
struct ValueStats {
  int64_t num_finite = 0;
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  int64_t num_zero = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  double rms = 0;  // of the 32 leading bits of each number

  // The numbers with 2^log2 <= |x| < 2^(log2 + 1); those with any, ascending.
  struct Bucket {
    int64_t log2 = 0;
    int64_t count = 0;
  };
  std::vector<Bucket> histogram = {};
};

// Gathers ValueStats. Each power of two has its own sums, which are whole
// numbers and exact, so that no figure depends on the order or on who adds
// what. Integers beyond 2^53 are first rounded to doubles.
class ValueSums {
 public:
  ValueSums();

  // Adds the elements of an image; a complex one as two numbers.
  void Add(ckpt::DType dtype, std::span<const std::byte> image);
  void Add(const ValueSums& other);

  ValueStats Stats() const;

 private:
  struct Magnitude {
    int64_t count = 0;
    __int128 sum = 0;               // in units of 2^(log2 - 52)
    unsigned __int128 squares = 0;  // in units of 2^(2 * log2 - 62)
  };

  void Add(double value);

  int64_t num_finite_ = 0;
  int64_t num_nan_ = 0;
  int64_t num_infinite_ = 0;
  int64_t num_zero_ = 0;
  double min_;
  double max_;
  std::vector<Magnitude> magnitudes_;  // of log2 from that of the least double
};

// Reads every block of a tensor once, on the default pool, in bounded memory.
// Calls `on_bytes` with the bytes of each, from one thread at a time.
absl::StatusOr<ValueStats> StatsOfTensor(
    const ckpt::Reader& reader, int64_t tensor,
    absl::FunctionRef<void(int64_t num_bytes)> on_bytes);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_TENSOR_STATS_H_
