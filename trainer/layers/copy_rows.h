// Columns of a matrix, to where they lie with another row stride.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_COPY_ROWS_H_
#define SHARDSHIFT_TRAINER_LAYERS_COPY_ROWS_H_

#include <algorithm>
#include <cstdint>

namespace shardshift::trainer {

// The first `columns` elements of each of `rows` rows.
inline void CopyRows(const float* from, int64_t from_stride, int64_t rows,
                     int64_t columns, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(from + r * from_stride, columns, to + r * to_stride);
  }
}

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_COPY_ROWS_H_
