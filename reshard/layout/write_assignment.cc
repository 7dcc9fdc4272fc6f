// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/write_assignment.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "reshard/layout/holdings.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/rank_state.h"

namespace shardshift::reshard {
namespace {

// Positions of the tensors in the order of their names.
std::vector<int64_t> NameOrder(const ModelConfig& model) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  std::vector<int64_t> by_name(tensors.size());
  std::iota(by_name.begin(), by_name.end(), 0);
  std::sort(by_name.begin(), by_name.end(), [&tensors](int64_t a, int64_t b) {
    return tensors[a].name < tensors[b].name;
  });
  std::vector<int64_t> order(tensors.size());
  for (size_t i = 0; i < by_name.size(); ++i) {
    order[by_name[i]] = static_cast<int64_t>(i);
  }
  return order;
}

// Hands out items, and counts what each rank has to write.
class Assignment {
 public:
  explicit Assignment(int64_t ranks) : items_(ranks), load_(ranks, 0) {}

  void Give(const Holding& what, int64_t role, int64_t rank) {
    load_[rank] += ckpt::NumElements(what.piece.box);
    items_[rank].push_back({what.piece.tensor, role, what.piece.box});
  }

  // The lowest of those with the least to write.
  int64_t LeastLoaded(Replicas holders) const {
    int64_t best = holders[0].ranks.first;
    for (const Holding& holding : holders) {
      for (int64_t i = 0; i < holding.ranks.count; ++i) {
        const int64_t rank = holding.ranks.first + i * holding.ranks.stride;
        if (std::tie(load_[rank], rank) < std::tie(load_[best], best)) {
          best = rank;
        }
      }
    }
    return best;
  }

  // Beside the masters of their tensors.
  void AddWeights(const std::vector<bool>& keeps_weight) {
    for (std::vector<WriteItem>& list : items_) {
      const auto num_items = std::ssize(list);
      for (int64_t i = 0; i < num_items; ++i) {
        const WriteItem item = list[i];
        if (item.role != 0 || !keeps_weight[item.tensor]) continue;
        list.push_back({item.tensor, kKeptWeight, item.box});
      }
    }
  }

  std::vector<std::vector<WriteItem>> TakeSorted() {
    for (std::vector<WriteItem>& list : items_) {
      std::sort(list.begin(), list.end(),
                [](const WriteItem& a, const WriteItem& b) {
                  return std::tie(a.tensor, a.role, a.box) <
                         std::tie(b.tensor, b.role, b.box);
                });
    }
    return std::move(items_);
  }

 private:
  std::vector<std::vector<WriteItem>> items_;
  std::vector<int64_t> load_;
};

struct ReplicatedItem {
  int64_t num_elements = 0;
  int64_t name_order = 0;  // of its tensor
  int64_t role = 0;
  Replicas holders;
};

bool GoesFirst(const ReplicatedItem& a, const ReplicatedItem& b) {
  return std::tie(b.num_elements, a.name_order, a.role,
                  a.holders[0].piece.box) <
         std::tie(a.num_elements, b.name_order, b.role, b.holders[0].piece.box);
}

}  // namespace

std::vector<std::vector<WriteItem>> AssignWriters(
    const ModelConfig& model, const Layout& layout, Content content,
    const std::vector<bool>& keeps_weight) {
  Layout holders_of = layout;
  if (content == Content::kWeights) holders_of.distributed_optimizer = false;
  const std::vector<Holding> holdings = HoldingsOf(model, holders_of);
  const int64_t num_roles = std::ssize(RolesOf(content));
  const std::vector<int64_t> name_order = NameOrder(model);
  Assignment assignment(layout.world_size());
  std::vector<ReplicatedItem> replicated;
  for (const Replicas& holders : GroupByBox(holdings)) {
    const Holding& first = holders[0];
    const bool one_holder = holders.size() == 1 && first.ranks.count == 1;
    for (int64_t role = 0; role < num_roles; ++role) {
      if (one_holder) {
        assignment.Give(first, role, first.ranks.first);
      } else {
        replicated.push_back({ckpt::NumElements(first.piece.box),
                              name_order[first.piece.tensor], role, holders});
      }
    }
  }
  std::sort(replicated.begin(), replicated.end(), GoesFirst);
  for (const ReplicatedItem& item : replicated) {
    assignment.Give(item.holders[0], item.role,
                    assignment.LeastLoaded(item.holders));
  }
  if (!keeps_weight.empty()) assignment.AddWeights(keeps_weight);
  return assignment.TakeSorted();
}

}  // namespace shardshift::reshard
