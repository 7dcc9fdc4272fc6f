// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "kernels/random.h"
#include "trainer/data/token_source.h"

namespace shardshift::trainer {
namespace {

class MockTokenSource : public TokenSource {
 public:
  MockTokenSource(uint64_t seed, int64_t seq_length, int64_t vocab_size)
      : seed_(seed),
        key_(kernels::RandomKey(seed, "mock tokens")),
        seq_length_(seq_length),
        vocab_size_(vocab_size) {}

  int64_t num_samples() const override { return kUnlimitedSamples; }
  int64_t seq_length() const override { return seq_length_; }

  absl::Status Sample(int64_t index, std::span<int32_t> tokens) const override {
    if (index < 0) {
      return absl::OutOfRangeError(absl::StrCat("mock sample ", index));
    }
    const uint64_t sample_key = kernels::RandomBits(key_, index);
    for (int64_t i = 0; i < std::ssize(tokens); ++i) {
      const uint64_t bits = kernels::RandomBits(sample_key, i);
      const bool follows = i % 2 == 1 && bits >> 62 != 0;
      tokens[i] =
          static_cast<int32_t>(follows ? Successor(tokens[i - 1]) : Draw(bits));
    }
    return absl::OkStatus();
  }

  nlohmann::json Identity() const override {
    return {{"kind", "mock"}, {"seed", seed_}, {"vocab_size", vocab_size_}};
  }

 private:
  // Octave k, the ids from 2^k - 1 below 2^(k+1) - 1, is as likely as any
  // other: id t has a probability of about 1 / (t + 1), in integers alone.
  int64_t Draw(uint64_t bits) const {
    const auto octaves = static_cast<int>(
        std::bit_width(static_cast<uint64_t>(vocab_size_) + 1) - 1);
    const int octave = static_cast<int>((bits & 0xffff) % octaves);
    const int64_t begin = (int64_t{1} << octave) - 1;
    const int64_t end =
        octave == octaves - 1 ? vocab_size_ : (int64_t{2} << octave) - 1;
    const auto offset = static_cast<int64_t>((bits >> 16) & 0xffffffff);
    return begin + offset % (end - begin);
  }

  int64_t Successor(int64_t token) const {
    return (token + 1 + vocab_size_ / 3) % vocab_size_;
  }

  const uint64_t seed_;
  const uint64_t key_;
  const int64_t seq_length_;
  const int64_t vocab_size_;
};

}  // namespace

std::unique_ptr<TokenSource> MakeMockTokenSource(uint64_t seed,
                                                 int64_t seq_length,
                                                 int64_t vocab_size) {
  return std::make_unique<MockTokenSource>(seed, seq_length, vocab_size);
}

}  // namespace shardshift::trainer
