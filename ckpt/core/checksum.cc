// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/checksum.h"

// The size of a state, which then needs no allocation of its own that might
// fail.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__)
// By the widest vectors that the processor has: 2.6 times as fast with AVX2.
#include <xxh_x86dispatch.h>
#endif

#include "absl/strings/str_format.h"

namespace shardshift::ckpt {
namespace {

// The library looks at the processor in its first call, which no other thread
// may see half done.
void LookAtProcessor() {
  [[maybe_unused]] static const XXH64_hash_t done = XXH3_64bits("", 0);
}

}  // namespace

uint64_t Checksum64(std::span<const std::byte> bytes) {
  LookAtProcessor();
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string ToString(const Digest128& digest) {
  return absl::StrFormat("%016x%016x", digest.high, digest.low);
}

struct Digest128Stream::State {
  XXH3_state_t xxh;
};

Digest128Stream::Digest128Stream() : state_(std::make_unique<State>()) {
  LookAtProcessor();
  XXH3_128bits_reset(&state_->xxh);
}
Digest128Stream::~Digest128Stream() = default;
Digest128Stream::Digest128Stream(Digest128Stream&&) noexcept = default;
Digest128Stream& Digest128Stream::operator=(Digest128Stream&&) noexcept =
    default;

void Digest128Stream::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Digest128 Digest128Stream::Digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.low64, hash.high64};
}

struct Checksum64Stream::State {
  XXH3_state_t xxh;
};

Checksum64Stream::Checksum64Stream() : state_(std::make_unique<State>()) {
  LookAtProcessor();
  XXH3_64bits_reset(&state_->xxh);
}
Checksum64Stream::~Checksum64Stream() = default;
Checksum64Stream::Checksum64Stream(Checksum64Stream&&) noexcept = default;
Checksum64Stream& Checksum64Stream::operator=(Checksum64Stream&&) noexcept =
    default;

void Checksum64Stream::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

uint64_t Checksum64Stream::Digest() const {
  return XXH3_64bits_digest(&state_->xxh);
}

}  // namespace shardshift::ckpt
