// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shardshift::ckpt {

#if defined(__SSE2__)

void StreamingCopy(std::span<const std::byte> src, std::span<std::byte> dst) {
  constexpr size_t kLine = 64;
  const auto address = reinterpret_cast<uintptr_t>(dst.data());
  const size_t head = std::min(src.size(), (kLine - address % kLine) % kLine);
  std::memcpy(dst.data(), src.data(), head);
  size_t i = head;
  for (; i + kLine <= src.size(); i += kLine) {
    // Whole lines at a time, as that is what goes to memory.
    const auto* from = reinterpret_cast<const __m128i*>(src.data() + i);
    auto* to = reinterpret_cast<__m128i*>(dst.data() + i);
    const __m128i words[] = {_mm_loadu_si128(from), _mm_loadu_si128(from + 1),
                             _mm_loadu_si128(from + 2),
                             _mm_loadu_si128(from + 3)};
    for (int w = 0; w < 4; ++w) _mm_stream_si128(to + w, words[w]);
  }
  // Such stores are in no order with others; who is told that the copy is
  // done must find it done.
  _mm_sfence();
  std::memcpy(dst.data() + i, src.data() + i, src.size() - i);
}

#else

void StreamingCopy(std::span<const std::byte> src, std::span<std::byte> dst) {
  std::ranges::copy(src, dst.begin());
}

#endif

}  // namespace shardshift::ckpt
