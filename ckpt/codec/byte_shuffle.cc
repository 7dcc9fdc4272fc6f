// SPDX-License-Identifier: Apache-2.0
#include "ckpt/codec/byte_shuffle.h"

#include <algorithm>
#include <array>

namespace shardshift::ckpt {
namespace {

// Items are dealt in tiles whose halves and quarters stay in the first cache.
constexpr size_t kTileBytes = 4096;

// These two compile to vector code for any processor; a loop over items with a
// stride does not.
void Unzip(const std::byte* __restrict in, size_t n, std::byte* __restrict even,
           std::byte* __restrict odd) {
  for (size_t i = 0; i < n; ++i) {
    even[i] = in[2 * i];
    odd[i] = in[2 * i + 1];
  }
}

void Zip(const std::byte* __restrict even, const std::byte* __restrict odd,
         size_t n, std::byte* __restrict out) {
  for (size_t i = 0; i < n; ++i) {
    out[2 * i] = even[i];
    out[2 * i + 1] = odd[i];
  }
}

// Splits n groups of kWays bytes, of which byte j goes to `out` +
// j * stride. The even bytes of a group are one of kWays / 2 bytes, with twice
// the stride.
template <size_t kWays>
void Split(const std::byte* in, size_t n, std::byte* out, size_t stride) {
  if constexpr (kWays == 1) {
    std::copy_n(in, n, out);
  } else if constexpr (kWays == 2) {
    Unzip(in, n, out, out + stride);
  } else {
    std::array<std::byte, kTileBytes / 2> even;
    std::array<std::byte, kTileBytes / 2> odd;
    Unzip(in, n * (kWays / 2), even.data(), odd.data());
    Split<kWays / 2>(even.data(), n, out, 2 * stride);
    Split<kWays / 2>(odd.data(), n, out + stride, 2 * stride);
  }
}

template <size_t kWays>
void Merge(const std::byte* in, size_t stride, size_t n, std::byte* out) {
  if constexpr (kWays == 1) {
    std::copy_n(in, n, out);
  } else if constexpr (kWays == 2) {
    Zip(in, in + stride, n, out);
  } else {
    std::array<std::byte, kTileBytes / 2> even;
    std::array<std::byte, kTileBytes / 2> odd;
    Merge<kWays / 2>(in, 2 * stride, n, even.data());
    Merge<kWays / 2>(in + stride, 2 * stride, n, odd.data());
    Zip(even.data(), odd.data(), n * (kWays / 2), out);
  }
}

// Calls tile(size, first item, number of items), where `size` is item_size as
// a constant, for tiles that make up `num_bytes`.
template <typename Tile>
void ForEachTile(int64_t item_size, size_t num_bytes, Tile tile) {
  const auto run = [&](auto size) {
    constexpr size_t kItemsPerTile = kTileBytes / size.value;
    const size_t num_items = num_bytes / size.value;
    for (size_t i = 0; i < num_items; i += kItemsPerTile) {
      tile(size, i, std::min(kItemsPerTile, num_items - i));
    }
  };
  switch (item_size) {
    case 1:
      return run(std::integral_constant<size_t, 1>());
    case 2:
      return run(std::integral_constant<size_t, 2>());
    case 4:
      return run(std::integral_constant<size_t, 4>());
    default:
      return run(std::integral_constant<size_t, 8>());
  }
}

}  // namespace

void ByteShuffle(std::span<const std::byte> items, int64_t item_size,
                 std::span<std::byte> planes) {
  const size_t stride = planes.size() / static_cast<size_t>(item_size);
  const size_t num_items = items.size() / static_cast<size_t>(item_size);
  ForEachTile(item_size, items.size(), [&](auto size, size_t i, size_t n) {
    Split<size.value>(items.data() + i * size.value, n, planes.data() + i,
                      stride);
  });
  for (size_t plane = 0; plane < planes.size(); plane += stride) {
    std::ranges::fill(planes.subspan(plane + num_items, stride - num_items),
                      std::byte{0});
  }
}

void ByteUnshuffle(std::span<const std::byte> planes, int64_t item_size,
                   std::span<std::byte> items) {
  const size_t stride = planes.size() / static_cast<size_t>(item_size);
  ForEachTile(item_size, items.size(), [&](auto size, size_t i, size_t n) {
    Merge<size.value>(planes.data() + i, stride, n,
                      items.data() + i * size.value);
  });
}

}  // namespace shardshift::ckpt
