// Values from one float dtype to another.
// The rule, for all of them: to the nearest value, of two as near the one with
// an even mantissa; what rounds beyond the largest finite value becomes an
// infinity, in F8_E4M3, which has none, NaN; subnormals and the sign of zero
// are kept; NaN becomes the quiet NaN without payload, of the same sign.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_CONVERT_H_
#define SHARDSHIFT_CKPT_CORE_CONVERT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "ckpt/core/dtype.h"

namespace shardshift::ckpt {

// Whether ConvertValues knows the pair: equal dtypes, or two of F64, F32, F16,
// BF16, F8_E5M2 and F8_E4M3. Errors: InvalidArgument, naming both.
absl::Status CheckConversion(DType from, DType to);

// Converts `count` elements; equal dtypes are copied bit by bit. `src` and
// `dst` need no alignment. REQUIRES: CheckConversion(from, to) is OK; src and
// dst do not overlap.
void ConvertValues(DType from, const std::byte* src, DType to, std::byte* dst,
                   int64_t count);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_CONVERT_H_
