// Uninitialised floats: activations and scratch. std::vector would fill them
// with zeros first.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_BUFFER_H_
#define SHARDSHIFT_TRAINER_BUFFER_H_

#include <cstdint>
#include <memory>
#include <span>

namespace shardshift::trainer {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size)
      : data_(
            std::make_unique_for_overwrite<float[]>(static_cast<size_t>(size))),
        size_(size) {}

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  std::span<float> span() { return {data_.get(), static_cast<size_t>(size_)}; }
  std::span<const float> span() const {
    return {data_.get(), static_cast<size_t>(size_)};
  }

 private:
  std::unique_ptr<float[]> data_;
  int64_t size_ = 0;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_BUFFER_H_
