// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/random.h"

namespace shardshift::kernels {
namespace {

constexpr int64_t kWords = 4;  // of a block of the generator

}  // namespace

void Dropout(const DropoutArgs& args) {
  const double kept = 1.0 - args.probability;
  const auto limit = static_cast<uint64_t>(std::llround(kept * 0x1p32));
  const auto scale = static_cast<float>(1.0 / kept);
  const auto sample = static_cast<uint64_t>(args.sample);
  const std::array<uint32_t, 2> key = {LowWord(args.key), HighWord(args.key)};
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.cols;
    float* out = args.out + r * args.cols;
    const int64_t cols = args.causal ? std::min(r + 1, args.cols) : args.cols;
    const uint32_t row = LowWord(static_cast<uint64_t>(args.first_row + r));
    for (int64_t begin = 0; begin < cols; begin += kWords) {
      const uint32_t block = LowWord(static_cast<uint64_t>(begin / kWords));
      const std::array<uint32_t, kWords> words =
          Philox4x32({block, row, LowWord(sample), HighWord(sample)}, key);
      const int64_t count = std::min(kWords, cols - begin);
      for (int64_t i = 0; i < count; ++i) {
        out[begin + i] = words[i] < limit ? x[begin + i] * scale : 0.0F;
      }
    }
    std::fill(out + cols, out + args.cols, 0.0F);
  }
}

}  // namespace shardshift::kernels
