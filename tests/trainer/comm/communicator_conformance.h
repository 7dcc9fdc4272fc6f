// What every Communicator backend must do: one suite, instantiated by the test
// of each backend with its way to run ranks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TRAINER_COMM_COMMUNICATOR_CONFORMANCE_H_
#define SHARDSHIFT_TESTS_TRAINER_COMM_COMMUNICATOR_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/tree.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {

using RankBody = std::function<absl::Status(Communicator&)>;

struct CommBackend {
  std::string name;
  // Runs the body on `size` ranks and returns the first error of any.
  std::function<absl::Status(int size, absl::Duration timeout, RankBody)> run;
};

inline void PrintTo(const CommBackend& backend, std::ostream* os) {
  *os << backend.name;
}

// Parameters: backend, number of ranks.
class CommunicatorConformance
    : public ::testing::TestWithParam<std::tuple<CommBackend, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }

  absl::Status Run(const RankBody& body,
                   absl::Duration timeout = absl::Minutes(2)) const {
    return std::get<0>(GetParam()).run(size(), timeout, body);
  }
};

// Lengths around chunk borders: empty, fewer than ranks, odd, even, long.
inline constexpr int64_t kCounts[] = {0, 1, 63, 64, 1000, 4099};

// Byte `index` of what `rank` sends, and the first `count` of them.
std::byte ByteOf(int rank, int64_t index);
std::vector<std::byte> BytesOf(int rank, int64_t count);

// Element `index` of tree leaf `leaf`: unique, of both signs, and of such
// unequal size that a sum in another order has other bits.
float LeafValue(int64_t leaf, int64_t index);

// The sum of `node`, by the definition of the tree.
float SerialTreeSum(const kernels::TreeNode& node, int64_t index);

// The tree nodes of one rank, where ranks hold uneven runs of leaves, some of
// them empty, and the values in memory.
class UnevenTreeNodes {
 public:
  UnevenTreeNodes(int64_t leaves, int64_t count, const Communicator& comm);

  TreeInput input() const { return {leaves_, buffers_, count_}; }
  // Null if this rank has no node.
  float* first_node() { return values_.empty() ? nullptr : values_[0].data(); }

 private:
  int64_t leaves_;
  int64_t count_;
  std::vector<std::vector<float>> values_;
  std::vector<TreeBuffer> buffers_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TESTS_TRAINER_COMM_COMMUNICATOR_CONFORMANCE_H_
