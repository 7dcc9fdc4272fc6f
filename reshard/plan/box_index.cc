// SPDX-License-Identifier: Apache-2.0
#include "reshard/plan/box_index.h"

#include <algorithm>

namespace shardshift::reshard {
namespace {

// A few boxes are compared faster than further nodes.
constexpr int64_t kLeafBoxes = 8;

// Writes start and end of every dim to `bounds`.
void PutBounds(const ckpt::Box& box, int64_t* bounds) {
  for (size_t d = 0; d < box.start.size(); ++d) {
    *bounds++ = box.start[d];
    *bounds++ = box.start[d] + box.extent[d];
  }
}

// Twice the centre; unsigned, as it may need 64 bits.
uint64_t Centre(const int64_t* bounds, size_t dim) {
  return static_cast<uint64_t>(bounds[2 * dim]) +
         static_cast<uint64_t>(bounds[2 * dim + 1]);
}

}  // namespace

BoxIndex::BoxIndex(std::span<const ckpt::Box> boxes) {
  if (boxes.empty()) return;
  stride_ = 2 * boxes[0].ndim();
  const auto num_boxes = std::ssize(boxes);
  std::vector<int64_t> bounds(num_boxes * stride_);
  for (int64_t i = 0; i < num_boxes; ++i) {
    if (ckpt::NumElements(boxes[i]) == 0) continue;
    PutBounds(boxes[i], bounds.data() + i * stride_);
    order_.push_back(i);
  }
  if (order_.empty()) return;
  Build(bounds, 0, std::ssize(order_));
  box_bounds_.resize(order_.size() * stride_);
  for (size_t place = 0; place < order_.size(); ++place) {
    std::copy_n(bounds.data() + order_[place] * stride_, stride_,
                box_bounds_.data() + place * stride_);
  }
}

// Gives the dim in which a cut goes through the fewest boxes.
size_t BoxIndex::AddNode(const std::vector<int64_t>& bounds, const Node& node) {
  const size_t at = node_bounds_.size();
  Bounds first = bounds.data() + order_[node.begin] * stride_;
  node_bounds_.insert(node_bounds_.end(), first, first + stride_);
  nodes_.push_back(node);
  size_t best = 0;
  double fewest = 0;
  for (int64_t d = 0; d < stride_ / 2; ++d) {
    int64_t& low = node_bounds_[at + 2 * d];
    int64_t& high = node_bounds_[at + 2 * d + 1];
    double extents = 0;
    for (int64_t i = node.begin; i < node.end; ++i) {
      Bounds box = bounds.data() + order_[i] * stride_ + 2 * d;
      low = std::min(low, box[0]);
      high = std::max(high, box[1]);
      extents += static_cast<double>(box[1] - box[0]);
    }
    // The boxes that a cut anywhere in the node goes through, on average.
    const double straddling = extents / static_cast<double>(high - low);
    if (d == 0 || straddling < fewest) {
      fewest = straddling;
      best = d;
    }
  }
  return best;
}

int64_t BoxIndex::Build(const std::vector<int64_t>& bounds, int64_t begin,
                        int64_t end) {
  const auto node = std::ssize(nodes_);
  const size_t dim = AddNode(bounds, {begin, end, 0});
  if (end - begin <= kLeafBoxes) return node;
  const int64_t middle = begin + (end - begin) / 2;
  const auto by_centre = [&](int64_t a, int64_t b) {
    return stride_ > 0 && Centre(bounds.data() + a * stride_, dim) <
                              Centre(bounds.data() + b * stride_, dim);
  };
  const auto first = order_.begin() + begin;
  const auto last = order_.begin() + end;
  // Fragments mostly come in order, and to see that is cheap.
  if (!std::is_sorted(first, last, by_centre)) {
    std::nth_element(first, order_.begin() + middle, last, by_centre);
  }
  Build(bounds, begin, middle);
  nodes_[node].right = Build(bounds, middle, end);
  return node;
}

bool BoxIndex::Overlap(Bounds a, Bounds b) const {
  for (int64_t i = 0; i < stride_; i += 2) {
    if (a[i] >= b[i + 1] || b[i] >= a[i + 1]) return false;
  }
  return true;
}

int64_t BoxIndex::AppendOverlaps(const ckpt::Box& box,
                                 std::vector<int64_t>& found) const {
  if (nodes_.empty() || ckpt::NumElements(box) == 0) return 0;
  std::vector<int64_t> wanted(stride_);
  PutBounds(box, wanted.data());
  int64_t looked_at = 0;
  Search(0, wanted.data(), found, looked_at);
  return looked_at;
}

void BoxIndex::Search(int64_t node, Bounds wanted, std::vector<int64_t>& found,
                      int64_t& looked_at) const {
  ++looked_at;
  if (!Overlap(BoundsOfNode(node), wanted)) return;
  const Node& at = nodes_[node];
  if (!at.is_leaf()) {
    Search(node + 1, wanted, found, looked_at);
    Search(at.right, wanted, found, looked_at);
    return;
  }
  looked_at += at.size();
  for (int64_t place = at.begin; place < at.end; ++place) {
    if (Overlap(BoundsOfBox(place), wanted)) found.push_back(order_[place]);
  }
}

std::optional<std::pair<int64_t, int64_t>> BoxIndex::AnyOverlap() const {
  if (nodes_.empty()) return std::nullopt;
  return OverlapWithin(0);
}

BoxIndex::Pair BoxIndex::OverlapWithin(int64_t node) const {
  const Node& at = nodes_[node];
  if (at.is_leaf()) return OverlapOf(at, at);
  if (const Pair pair = OverlapWithin(node + 1)) return pair;
  if (const Pair pair = OverlapWithin(at.right)) return pair;
  return OverlapBetween(node + 1, at.right);
}

BoxIndex::Pair BoxIndex::OverlapBetween(int64_t a, int64_t b) const {
  if (!Overlap(BoundsOfNode(a), BoundsOfNode(b))) return std::nullopt;
  if (nodes_[a].is_leaf() && nodes_[b].is_leaf()) {
    return OverlapOf(nodes_[a], nodes_[b]);
  }
  if (nodes_[a].size() < nodes_[b].size()) std::swap(a, b);
  if (const Pair pair = OverlapBetween(a + 1, b)) return pair;
  return OverlapBetween(nodes_[a].right, b);
}

BoxIndex::Pair BoxIndex::OverlapOf(const Node& a, const Node& b) const {
  for (int64_t i = a.begin; i < a.end; ++i) {
    for (int64_t j = b.begin; j < b.end; ++j) {
      if (i == j || !Overlap(BoundsOfBox(i), BoundsOfBox(j))) continue;
      return std::minmax(order_[i], order_[j]);
    }
  }
  return std::nullopt;
}

}  // namespace shardshift::reshard
