// How much memory a piece of code takes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TESTUTIL_HEAP_PEAK_H_
#define SHARDSHIFT_TESTS_TESTUTIL_HEAP_PEAK_H_

#include <cstdint>

namespace shardshift {

// Counts what all threads take by `new`; a program that links this library
// has its operators. Memory that libraries take by malloc, and buffers of
// direct I/O, are not seen.
class HeapPeak {
 public:
  // Begins to measure. One at a time.
  HeapPeak();
  // The most bytes that were taken at once since, beyond those at the start.
  int64_t bytes() const;

 private:
  int64_t start_bytes_;
};

}  // namespace shardshift

#endif  // SHARDSHIFT_TESTS_TESTUTIL_HEAP_PEAK_H_
