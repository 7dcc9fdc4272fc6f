// Checkpoints for tests: every element's bytes tell its tensor and its place.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_CKPT_SAMPLE_H_
#define SHARDSHIFT_TESTS_CKPT_SAMPLE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/core/box.h"
#include "ckpt/format/table.h"
#include "ckpt/reader.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {

// A directory on a file system in memory if there is one, ending in '/'.
std::string InMemory();

// A new empty directory, removed at the end.
class TempDir {
 public:
  explicit TempDir(const std::string& parent = ::testing::TempDir());
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A tensor and how it is cut.
struct Piece {
  int64_t part = 0;
  Box box;
};
struct SampleTensor {
  Tensor info;
  std::vector<Piece> pieces;
};

// The dense image of `box` of a tensor: an element's bytes are a hash of the
// tensor's name and role and the element's global row-major index.
std::vector<std::byte> Payload(const Tensor& tensor, const Box& box);

// Cuts `whole` into about max_boxes random boxes, in random order; an empty
// one stays whole.
std::vector<Box> RandomPartition(const Box& whole, int max_boxes,
                                 std::mt19937& random);

// Tensors of every dtype and of 0 to 5 dims, extents 0 and 1 among them, cut
// at random over `num_parts` parts.
std::vector<SampleTensor> RandomTensors(int num_parts, std::mt19937& random);

// Writes the parts of `tensors`, then commits.
absl::Status WriteSample(const std::string& run_dir, int64_t step,
                         const std::vector<SampleTensor>& tensors,
                         bool replace = false,
                         const std::string& state = R"({"step":1})");

// The steps of WriteSample before the commit.
absl::StatusOr<std::vector<PartReceipt>> WriteSampleParts(
    const std::string& directory, const CheckpointId& id,
    const std::vector<SampleTensor>& tensors);

// Verifies a checkpoint deep, and compares every value of `tensors` with it.
absl::Status CheckSample(const std::string& step_dir,
                         const std::vector<SampleTensor>& tensors);

// Writes the same values into foreign files `path`0, `path`1, ... at odd
// places, some matrices column by column.
absl::StatusOr<std::unique_ptr<Reader>> WriteForeignSample(
    const std::string& path, const std::vector<SampleTensor>& tensors,
    std::mt19937& random);

// Three small tensors over two parts; name "w" is F32 [6,8] in two columns.
std::vector<SampleTensor> SmallTensors();

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_TESTS_CKPT_SAMPLE_H_
