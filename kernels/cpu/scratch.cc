// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/scratch.h"

#include <cstddef>
#include <new>

namespace shardshift::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { Free(); }

  float* Reserve(int64_t count) {
    if (count > count_) {
      Free();
      data_ = static_cast<float*>(::operator new(
          static_cast<std::size_t>(count) * sizeof(float), kAlignment));
      count_ = count;
    }
    return data_;
  }

 private:
  void Free() {
    ::operator delete(data_, kAlignment);
    data_ = nullptr;
    count_ = 0;
  }

  float* data_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace

float* ThreadScratch(int64_t count) {
  thread_local Scratch scratch;
  return scratch.Reserve(count);
}

}  // namespace shardshift::kernels
