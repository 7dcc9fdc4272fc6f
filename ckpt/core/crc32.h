// The CRC-32 of zip and zlib.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_CRC32_H_
#define SHARDSHIFT_CKPT_CORE_CRC32_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardshift::ckpt {

// Goes on with the checksum of what came before; that of nothing is 0.
uint32_t UpdateCrc32(uint32_t crc32, std::span<const std::byte> bytes);

// Of two pieces that follow each other, from those of each.
uint32_t CombineCrc32(uint32_t first, uint32_t second, int64_t second_bytes);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_CRC32_H_
