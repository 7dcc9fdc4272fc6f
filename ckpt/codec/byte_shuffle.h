// The byte shuffle of HDF5's filter 2: byte b of every item, then byte b + 1
// of every item, so that bytes that are alike lie together.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CODEC_BYTE_SHUFFLE_H_
#define SHARDSHIFT_CKPT_CODEC_BYTE_SHUFFLE_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardshift::ckpt {

// Item sizes are those of dtypes: 1, 2, 4 and 8. Both spans hold whole items
// and do not overlap.

// Fills `planes`, which has item_size planes of equal size, with the bytes of
// `items`, and the rest of each plane with zeros: the shuffle of `items` after
// they were padded with zeros. REQUIRES: items.size() <= planes.size().
void ByteShuffle(std::span<const std::byte> items, int64_t item_size,
                 std::span<std::byte> planes);

// The inverse: fills `items` from the begin of each plane.
// REQUIRES: items.size() <= planes.size().
void ByteUnshuffle(std::span<const std::byte> planes, int64_t item_size,
                   std::span<std::byte> items);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CODEC_BYTE_SHUFFLE_H_
