// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/scratch.h"

#include <cstddef>
#include <memory>
#include <new>

namespace shardshift::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

struct AlignedDelete {
  void operator()(float* data) const { ::operator delete(data, kAlignment); }
};

struct Scratch {
  std::unique_ptr<float, AlignedDelete> data;
  int64_t count = 0;
};

}  // namespace

float* ThreadScratch(int64_t count) {
  thread_local Scratch scratch;
  if (count > scratch.count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
    // The old memory goes first: both together might not fit.
    scratch.data.reset();
    scratch.data.reset(static_cast<float*>(::operator new(bytes, kAlignment)));
    scratch.count = count;
  }
  // The analyzer does not see that reset() put the new memory in place.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete)
  return scratch.data.get();
}

}  // namespace shardshift::kernels
