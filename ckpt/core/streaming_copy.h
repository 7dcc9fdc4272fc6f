// A copy of what is not read again soon.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_STREAMING_COPY_H_
#define SHARDSHIFT_CKPT_CORE_STREAMING_COPY_H_

#include <cstddef>
#include <span>

namespace shardshift::ckpt {

// Copies src to dst, of which it writes the whole 16-byte words past the cache:
// memory is not read before it is overwritten, and what the cache holds stays.
// About twice as fast as memcpy for some MiB, a third for 4 KiB, slower for
// much less. REQUIRES: dst has room for src; they do not overlap.
void StreamingCopy(std::span<const std::byte> src, std::span<std::byte> dst);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_STREAMING_COPY_H_
