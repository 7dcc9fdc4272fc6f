// Uninitialised floats: activations, their gradients and scratch. std::vector
// would fill them with zeros first. Buffers are counted, so that a rank knows
// how much of them it has at once.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_BUFFER_H_
#define SHARDSHIFT_TRAINER_BUFFER_H_

#include <cstdint>
#include <memory>
#include <span>

namespace shardshift::trainer {

// Bytes of the Buffers that the calling thread made and has not given back:
// now, and at most since the last ResetThreadBufferPeak. Buffers stay on the
// thread that made them.
struct BufferUse {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
};
BufferUse ThreadBufferUse();
void ResetThreadBufferPeak();

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size);

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  std::span<float> span() { return {data_.get(), static_cast<size_t>(size_)}; }
  std::span<const float> span() const {
    return {data_.get(), static_cast<size_t>(size_)};
  }

 private:
  struct Release {
    int64_t size;
    void operator()(const float* data) const;
  };

  std::unique_ptr<float[], Release> data_;
  int64_t size_ = 0;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_BUFFER_H_
