// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/write_assignment.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "reshard/layout/model_map.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/rank_state.h"

namespace shardshift::reshard {
namespace {

// A box, and ranks that all own it.
struct Holding {
  int64_t tensor = 0;
  ckpt::Box box;
  RankRun ranks;
};

bool SameBox(const Holding& a, const Holding& b) {
  return a.tensor == b.tensor && a.box == b.box;
}

// What every rank owns, by tensor and box; holdings of one box are neighbours.
std::vector<Holding> HoldingsOf(const ModelConfig& model,
                                const Layout& layout) {
  const ModelMap map(model, layout);
  std::vector<Holding> holdings;
  for (const BufferPlace& place : map.Places()) {
    const LocalBuffer buffer = map.MakeBuffer(place);
    const RankRun all = map.RanksOf(place);
    // Ranks that own the same are one holding.
    const int64_t shards = buffer.buffer.shards;
    for (int64_t shard = 0; shard < shards; ++shard) {
      const RankRun ranks = {.first = all.first + shard * all.stride,
                             .stride = all.stride,
                             .count = all.count / shards};
      for (Piece& piece :
           PiecesWithin(buffer, buffer.buffer.OwnedRanges(shard))) {
        holdings.push_back({piece.tensor, std::move(piece.box), ranks});
      }
    }
  }
  std::sort(holdings.begin(), holdings.end(),
            [](const Holding& a, const Holding& b) {
              return std::tie(a.tensor, a.box, a.ranks.first) <
                     std::tie(b.tensor, b.box, b.ranks.first);
            });
  return holdings;
}

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

using Holders = std::span<const Holding>;

// Hands out items, and counts what each rank has to write.
class Assignment {
 public:
  explicit Assignment(int64_t ranks) : items_(ranks), load_(ranks, 0) {}

  void Give(const Holding& what, int64_t role, int64_t rank) {
    load_[rank] += ckpt::NumElements(what.box);
    items_[rank].push_back({what.tensor, role, what.box});
  }

  // The lowest of those with the least to write.
  int64_t LeastLoaded(Holders holders) const {
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
  Holders holders;
};

bool GoesFirst(const ReplicatedItem& a, const ReplicatedItem& b) {
  return std::tie(b.num_elements, a.name_order, a.role, a.holders[0].box) <
         std::tie(a.num_elements, b.name_order, b.role, b.holders[0].box);
}

}  // namespace

std::vector<std::vector<WriteItem>> AssignWriters(const ModelConfig& model,
                                                  const Layout& layout,
                                                  Content content) {
  Layout holders_of = layout;
  if (content == Content::kWeights) holders_of.distributed_optimizer = false;
  const std::vector<Holding> holdings = HoldingsOf(model, holders_of);
  const int64_t num_roles = std::ssize(RolesOf(content));
  const std::vector<int64_t> name_order = NameOrder(model);
  Assignment assignment(layout.world_size());
  std::vector<ReplicatedItem> replicated;
  for (size_t begin = 0, end = 0; begin < holdings.size(); begin = end) {
    const Holding& first = holdings[begin];
    while (end < holdings.size() && SameBox(first, holdings[end])) ++end;
    const Holders holders(&first, end - begin);
    const bool one_holder = holders.size() == 1 && first.ranks.count == 1;
    for (int64_t role = 0; role < num_roles; ++role) {
      if (one_holder) {
        assignment.Give(first, role, first.ranks.first);
      } else {
        replicated.push_back({ckpt::NumElements(first.box),
                              name_order[first.tensor], role, holders});
      }
    }
  }
  std::sort(replicated.begin(), replicated.end(), GoesFirst);
  for (const ReplicatedItem& item : replicated) {
    assignment.Give(item.holders[0], item.role,
                    assignment.LeastLoaded(item.holders));
  }
  return assignment.TakeSorted();
}

}  // namespace shardshift::reshard
