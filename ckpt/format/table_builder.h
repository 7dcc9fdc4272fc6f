// Making a sorted table out of fragments in any order.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_FORMAT_TABLE_BUILDER_H_
#define SHARDSHIFT_CKPT_FORMAT_TABLE_BUILDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/format/table.h"

namespace shardshift::ckpt {

class TableBuilder {
 public:
  // Adds a fragment of `tensor`; fragment.tensor is not looked at.
  // Errors: InvalidArgument if an earlier one had the tensor with another
  // dtype or shape.
  absl::Status Add(const Tensor& tensor, Fragment fragment);

  // The tensors and fragments in their order, and for each added fragment its
  // index in the table. Call once. Checks nothing.
  std::pair<Table, std::vector<int64_t>> Build();

 private:
  std::map<std::pair<std::string, std::string>, int64_t> tensor_index_;
  Table table_;  // in the order of adding
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_FORMAT_TABLE_BUILDER_H_
