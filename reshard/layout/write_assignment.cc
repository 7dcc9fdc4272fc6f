// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/write_assignment.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "reshard/layout/parameters.h"
#include "reshard/layout/rank_state.h"

namespace shardshift::reshard {
namespace {

using TensorBox = std::pair<int64_t, ckpt::Box>;

// Every box that some rank owns, and all ranks that own it, ascending.
std::map<TensorBox, std::vector<int64_t>> HoldersOfBoxes(
    const ModelConfig& model, const Layout& layout) {
  std::map<TensorBox, std::vector<int64_t>> holders;
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    for (Piece& piece : MakeRankState(model, layout, rank).pieces) {
      holders[{piece.tensor, std::move(piece.box)}].push_back(rank);
    }
  }
  return holders;
}

struct ReplicatedItem {
  WriteItem item;
  const std::vector<int64_t>* holders;
};

}  // namespace

std::vector<std::vector<WriteItem>> AssignWriters(const ModelConfig& model,
                                                  const Layout& layout) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  const auto holders_of = HoldersOfBoxes(model, layout);
  constexpr auto kRoles = static_cast<int64_t>(kOptimizerRoles.size());

  std::vector<std::vector<WriteItem>> items(layout.world_size());
  std::vector<int64_t> load(layout.world_size(), 0);
  std::vector<ReplicatedItem> replicated;
  for (const auto& [key, holders] : holders_of) {
    for (int64_t role = 0; role < kRoles; ++role) {
      WriteItem item{.tensor = key.first, .role = role, .box = key.second};
      if (holders.size() > 1) {
        replicated.push_back({std::move(item), &holders});
        continue;
      }
      load[holders[0]] += ckpt::NumElements(item.box);
      items[holders[0]].push_back(std::move(item));
    }
  }

  using Key =
      std::tuple<int64_t, const std::string&, int64_t, const ckpt::Box&>;
  const auto by_size_then_name = [&tensors](const ReplicatedItem& r) {
    const WriteItem& item = r.item;
    return Key(-ckpt::NumElements(item.box), tensors[item.tensor].name,
               item.role, item.box);
  };
  std::sort(replicated.begin(), replicated.end(),
            [&](const ReplicatedItem& a, const ReplicatedItem& b) {
              return by_size_then_name(a) < by_size_then_name(b);
            });
  for (ReplicatedItem& r : replicated) {
    const int64_t writer = *std::min_element(
        r.holders->begin(), r.holders->end(),
        [&load](int64_t a, int64_t b) { return load[a] < load[b]; });
    load[writer] += ckpt::NumElements(r.item.box);
    items[writer].push_back(std::move(r.item));
  }

  for (std::vector<WriteItem>& list : items) {
    std::sort(list.begin(), list.end(),
              [](const WriteItem& a, const WriteItem& b) {
                return std::tie(a.tensor, a.role, a.box) <
                       std::tie(b.tensor, b.role, b.box);
              });
  }
  return items;
}

}  // namespace shardshift::reshard
