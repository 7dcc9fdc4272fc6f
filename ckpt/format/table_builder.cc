// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/table_builder.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace shardshift::ckpt {
namespace {

std::string Kind(const Tensor& tensor) {
  return absl::StrCat(absl::string_view(Name(tensor.dtype)),
                      ToString(tensor.shape));
}

}  // namespace

absl::Status TableBuilder::Add(const Tensor& tensor, Fragment fragment) {
  const auto [entry, is_new] = tensor_index_.try_emplace(
      {tensor.name, tensor.role}, table_.tensors.size());
  if (is_new) {
    table_.tensors.push_back(tensor);
  } else if (const Tensor& known = table_.tensors[entry->second];
             known != tensor) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(tensor),
                                                   " is given as ", Kind(known),
                                                   " and as ", Kind(tensor)));
  }
  fragment.tensor = entry->second;
  table_.fragments.push_back(std::move(fragment));
  return absl::OkStatus();
}

std::pair<Table, std::vector<int64_t>> TableBuilder::Build() {
  Table sorted;
  std::vector<int64_t> new_index(table_.tensors.size());
  // The map's order is the table's.
  for (const auto& [key, index] : tensor_index_) {
    new_index[index] = static_cast<int64_t>(sorted.tensors.size());
    sorted.tensors.push_back(std::move(table_.tensors[index]));
  }
  PageVector<Fragment>& fragments = table_.fragments;
  for (Fragment& f : fragments) f.tensor = new_index[f.tensor];

  std::vector<int64_t> order(fragments.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::tie(fragments[a].tensor, fragments[a].box) <
           std::tie(fragments[b].tensor, fragments[b].box);
  });
  std::vector<int64_t> place(fragments.size());
  for (const int64_t index : order) {
    place[index] = static_cast<int64_t>(sorted.fragments.size());
    sorted.fragments.push_back(std::move(fragments[index]));
  }
  return {std::move(sorted), std::move(place)};
}

}  // namespace shardshift::ckpt
