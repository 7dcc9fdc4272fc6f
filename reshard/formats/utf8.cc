// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/utf8.h"

#include <cstddef>
#include <cstdint>

namespace shardshift::reshard {
namespace {

// Bytes of the character that `text` begins with; 0 if it is none.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t num_bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < num_bytes) return 0;
  for (size_t i = 1; i < num_bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer than need be, a surrogate, or too large: the second byte tells.
  const bool bad =
      (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F);
  return bad ? 0 : num_bytes;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t num_bytes = CharacterBytes(text);
    if (num_bytes == 0) return false;
    text.remove_prefix(num_bytes);
  }
  return true;
}

}  // namespace shardshift::reshard
