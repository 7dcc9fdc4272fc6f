// Embedding lookup and its gradient on a range of the vocabulary's rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_EMBEDDING_H_
#define SHARDSHIFT_KERNELS_EMBEDDING_H_

#include <cstdint>

namespace shardshift::kernels {

// out[t,:] = table[ids[t] - row_begin, :] + 0 where row_begin <= ids[t] <
// row_end, else +0. Adding +0 makes -0 into +0, as a sum over several owners
// would. ids: [count]; table: [row_end - row_begin, width]; out: [count,width].
struct EmbeddingLookupArgs {
  const int32_t* ids = nullptr;
  int64_t count = 0;
  const float* table = nullptr;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t width = 0;
  float* out = nullptr;
};

// acc[ids[t] - row_begin, :] += dx[t,:] for t = 0, 1, .., owned ids only.
// dx: [count,width]; acc: [row_end - row_begin, width].
struct EmbeddingGradArgs {
  const int32_t* ids = nullptr;
  int64_t count = 0;
  const float* dx = nullptr;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t width = 0;
  float* acc = nullptr;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_EMBEDDING_H_
