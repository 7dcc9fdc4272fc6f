// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/pickle_value.h"

namespace shardshift::reshard {
namespace {

// A value whose children are under way.
struct Frame {
  PickleValue value;
  size_t num_children = 0;
  size_t next_child = 0;
};

}  // namespace

size_t PickleValue::num_children() const {
  if (kind() == PickleKind::kPersistentId) return 1;
  const auto pairs = Pairs();
  const size_t count = pairs ? pairs->size() / 2 : pickle_->Items(id_).size();
  if (kind() != PickleKind::kObject) return count;
  return count + 1 + (pickle_->Kwargs(id_) ? 1 : 0) +
         (pickle_->State(id_) ? 1 : 0);
}

PickleValue PickleValue::Child(size_t index) const {
  const auto child = [&](Pickle::Id id, Label label, size_t number = 0) {
    return PickleValue(*this, Here(), id, label, number);
  };
  if (kind() == PickleKind::kPersistentId) {
    return child(pickle_->PersistentId(id_), Label::kArgs);
  }
  if (const auto pairs = Pairs()) {
    if (index < pairs->size() / 2) {
      return child((*pairs)[2 * index + 1], Label::kKey, (*pairs)[2 * index]);
    }
    index -= pairs->size() / 2;
  } else {
    const std::span<const Pickle::Id> items = pickle_->Items(id_);
    if (index < items.size()) return child(items[index], Label::kIndex, index);
    index -= items.size();
  }
  if (index == 0) return child(pickle_->Args(id_), Label::kArgs);
  const std::optional<Pickle::Id> kwargs = pickle_->Kwargs(id_);
  if (kwargs && index == 1) return child(*kwargs, Label::kKwargs);
  return child(*pickle_->State(id_), Label::kNothing);
}

absl::Status WalkPickle(const PickleValue& root, const WalkLimits& limits,
                        absl::FunctionRef<absl::StatusOr<bool>(
                            const PickleValue& value, int64_t depth)>
                            visit) {
  std::vector<Frame> frames;
  int64_t num_visits = 0;
  const auto enter = [&](const PickleValue& value) -> absl::Status {
    const int64_t depth = std::ssize(frames);
    if (++num_visits > limits.max_visits || depth > limits.max_depth) {
      return absl::ResourceExhaustedError(absl::StrCat(
          value.Where(), ": more than ",
          depth > limits.max_depth
              ? absl::StrCat(limits.max_depth, " values one in the other")
              : absl::StrCat(limits.max_visits,
                             " values, counted wherever they are used")));
    }
    SS_ASSIGN_OR_RETURN(const bool inside, visit(value, depth));
    if (inside) {
      frames.push_back({.value = value, .num_children = value.num_children()});
    }
    return absl::OkStatus();
  };
  SS_RETURN_IF_ERROR(enter(root));
  while (!frames.empty()) {
    Frame& frame = frames.back();
    if (frame.next_child == frame.num_children) {
      frames.pop_back();
      continue;
    }
    SS_RETURN_IF_ERROR(enter(frame.value.Child(frame.next_child++)));
  }
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
