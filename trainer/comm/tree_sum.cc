// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/tree_sum.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

absl::Status CheckTiling(int64_t leaves, std::span<const TreeBuffer> nodes) {
  int64_t next = 0;
  for (const auto& [node, data] : nodes) {
    if (node.begin != next) {
      return absl::InvalidArgumentError(
          absl::StrCat("tree leaf ", std::min(next, node.begin), " of ", leaves,
                       node.begin > next ? " is in no node of any rank"
                                         : " is in two nodes"));
    }
    if (!kernels::IsTreeNode(leaves, node)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "leaves [", node.begin, ",", node.end, ") are no node of the tree ",
          "over ", leaves, " leaves; send its complete nodes"));
    }
    next = node.end;
  }
  if (next == leaves) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tree leaf ", next, " of ", leaves, " is in no node of any rank"));
}

}  // namespace

absl::Status SumTree(int64_t leaves, std::vector<TreeBuffer> nodes,
                     int64_t begin, int64_t end, float* out) {
  std::ranges::sort(nodes, {},
                    [](const TreeBuffer& buffer) { return buffer.node.begin; });
  SS_RETURN_IF_ERROR(CheckTiling(leaves, nodes));
  if (begin == end) return absl::OkStatus();
  for (TreeBuffer& buffer : nodes) buffer.data += begin;
  kernels::CombineNodes({0, leaves}, nodes, end - begin, out);
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
