// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/formats/utf8.h"

namespace shardshift::reshard {
namespace {

constexpr size_t kMaxNameBytes = 1024;

// While a node grows, its payload is the first and, in the upper half, the last
// of its segments.
uint32_t Low(uint64_t payload) { return static_cast<uint32_t>(payload); }
uint32_t High(uint64_t payload) { return static_cast<uint32_t>(payload >> 32); }
uint64_t Both(uint32_t low, uint32_t high) {
  return uint64_t{high} << 32 | low;
}

bool Grows(PickleKind kind) {
  return kind == PickleKind::kList || kind == PickleKind::kDict ||
         kind == PickleKind::kSet || kind == PickleKind::kObject;
}

}  // namespace

PickleParser::PickleParser(std::string bytes, const PickleOptions& options)
    : options_(options), segments_(1) {
  pickle_.bytes_ = std::move(bytes);
  input_ = pickle_.bytes_;
}

absl::StatusOr<Pickle> PickleParser::Run() {
  const int64_t max_bytes = std::min(options_.max_bytes, kMaxPickleBytes);
  if (std::ssize(input_) > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the pickle has ", input_.size(), " bytes, at most ",
                     max_bytes, " are read"));
  }
  while (status_.ok() && !stopped_) {
    opcode_position_ = position_;
    if (position_ == input_.size()) {
      Fail("the pickle ends without a STOP");
    } else {
      Step(static_cast<uint8_t>(input_[position_++]));
    }
  }
  if (status_.ok()) status_ = Finish();
  if (!status_.ok()) return status_;
  return std::move(pickle_);
}

void PickleParser::FailWith(absl::StatusCode code, absl::string_view what) {
  if (!status_.ok()) return;
  status_ = absl::Status(
      code, absl::StrCat("pickle, at byte ", opcode_position_, ": ", what));
}

Pickle::Id PickleParser::Add(const Node& node) {
  if (std::ssize(pickle_.nodes_) >= options_.max_nodes) {
    FailWith(absl::StatusCode::kResourceExhausted,
             absl::StrCat("more than ", options_.max_nodes, " values"));
  }
  pickle_.nodes_.push_back(node);
  return static_cast<Id>(pickle_.nodes_.size() - 1);
}

void PickleParser::PushText(PickleKind kind, absl::string_view text) {
  if (std::ssize(text) > options_.max_text_bytes) {
    FailWith(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat(Describe(kind), " of ", text.size(), " bytes, at most ",
                     options_.max_text_bytes, " are read"));
  }
  if (kind == PickleKind::kString && !IsUtf8(text)) {
    Fail("a string is not UTF-8");
  }
  const uint64_t begin =
      text.empty() ? 0 : static_cast<uint64_t>(text.data() - input_.data());
  Push(Add({.payload = begin,
            .count = static_cast<uint32_t>(text.size()),
            .kind = kind}));
}

void PickleParser::PushLong(uint64_t num_bytes) {
  const absl::string_view bytes = Take(num_bytes);
  if (bytes.size() > 8) return PushText(PickleKind::kBigInt, bytes);
  // From the sign down.
  const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  uint64_t value = negative ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  }
  PushNode(PickleKind::kInt, value);
}

void PickleParser::PushTuple(size_t count) {
  if (Room() < count) return Fail("too few items on the stack for a tuple");
  std::vector<Id>& edges = pickle_.edges_;
  const Node node = {.payload = edges.size(),
                     .count = static_cast<uint32_t>(count),
                     .kind = PickleKind::kTuple};
  const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
  edges.insert(edges.end(), first, stack_.end());
  stack_.erase(first, stack_.end());
  Push(Add(node));
}

void PickleParser::PushGlobal(Id module, Id name) {
  if (!status_.ok()) return;
  if (pickle_.kind(module) != PickleKind::kString ||
      pickle_.kind(name) != PickleKind::kString) {
    return Fail("a global whose name is no string");
  }
  PushNode(PickleKind::kGlobal, Both(module, name));
  const Id global = stack_.back();
  const absl::string_view module_name = pickle_.Module(global);
  const absl::string_view own_name = pickle_.Name(global);
  if (std::max(module_name.size(), own_name.size()) > kMaxNameBytes) {
    return Fail("a global with an overlong name");
  }
  const auto refuse = [&](absl::string_view why) {
    FailWith(
        absl::StatusCode::kPermissionDenied,
        absl::StrCat("it names ", module_name, ".", own_name, ", which ", why));
  };
  if (IsRefusedGlobal(module_name, own_name)) {
    return refuse(
        "no checkpoint needs: whoever loads this pickle in Python would run "
        "it. Do not load it");
  }
  if (!options_.is_allowed(module_name, own_name)) {
    refuse("is none of the classes and functions known to be of checkpoints");
  }
}

void PickleParser::PushObject(bool with_kwargs) {
  const Id kwargs = with_kwargs ? Pop() : Pickle::kAbsent;
  const Id args = Pop();
  const Id callable = Pop();
  if (!status_.ok()) return;
  if (pickle_.kind(callable) != PickleKind::kGlobal) {
    return Fail(absl::StrCat("a call of ", Describe(pickle_.kind(callable)),
                             ", expected a global"));
  }
  if (pickle_.kind(args) != PickleKind::kTuple) {
    return Fail(absl::StrCat("arguments that are ",
                             Describe(pickle_.kind(args)),
                             ", expected a tuple"));
  }
  if (with_kwargs && pickle_.kind(kwargs) != PickleKind::kDict) {
    return Fail("keyword arguments that are no dict");
  }
  const Id fixed[] = {callable, args, Pickle::kAbsent, kwargs};
  static_assert(std::size(fixed) == Pickle::kNumFixed);
  Node node = {.kind = PickleKind::kObject};
  AddSegment(node, fixed);
  Push(Add(node));
}

size_t PickleParser::Room() const {
  return stack_.size() - (marks_.empty() ? 0 : marks_.back());
}

Pickle::Id PickleParser::Top() {
  if (Room() > 0) return stack_.back();
  Fail("nothing is on the stack");
  // A node there is, so that callers need not ask.
  if (pickle_.nodes_.empty()) pickle_.nodes_.emplace_back();
  return 0;
}

Pickle::Id PickleParser::Pop() {
  const Id id = Top();
  if (status_.ok()) stack_.pop_back();
  return id;
}

std::vector<Pickle::Id> PickleParser::PopToMark() {
  if (marks_.empty()) {
    Fail("no mark on the stack");
    return {};
  }
  const auto first =
      stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<Id> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return items;
}

void PickleParser::Put(uint64_t index) {
  const Id id = Top();
  // Each index takes an operation, so honest ones are below the bytes: a
  // table of that size does no harm.
  if (index >= input_.size()) {
    return Fail(absl::StrCat("memo index ", index, " in a pickle of ",
                             input_.size(), " bytes"));
  }
  if (index >= memo_.size()) memo_.resize(index + 1, Pickle::kAbsent);
  memo_[index] = id;
}

void PickleParser::Get(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == Pickle::kAbsent) {
    return Fail(absl::StrCat("memo index ", index, " was never set"));
  }
  Push(memo_[index]);
}

void PickleParser::Append(Id container, std::span<const Id> items,
                          Growth growth) {
  if (!status_.ok()) return;
  Node& node = pickle_.nodes_[container];
  const bool pairs = growth == Growth::kPairs;
  const bool fits =
      node.kind == PickleKind::kObject ||
      (pairs ? node.kind == PickleKind::kDict
             : node.kind == PickleKind::kList || node.kind == PickleKind::kSet);
  if (!fits) {
    return Fail(absl::StrCat(pairs ? "keys and values" : "items", " put into ",
                             Describe(node.kind)));
  }
  if (pairs && items.size() % 2 != 0) return Fail("a key without a value");
  if (items.empty()) return;
  if (node.growth != Growth::kNothing && node.growth != growth) {
    return Fail("both items and keys put into one object");
  }
  node.growth = growth;
  AddSegment(node, items);
}

void PickleParser::AddSegment(Node& node, std::span<const Id> items) {
  std::vector<Id>& edges = pickle_.edges_;
  const auto first = static_cast<uint32_t>(edges.size());
  const auto count = static_cast<uint32_t>(items.size());
  edges.insert(edges.end(), items.begin(), items.end());
  node.count += count;
  Segment& last = segments_[High(node.payload)];
  if (node.payload != 0 && last.first + last.count == first) {
    last.count += count;
    return;
  }
  const auto added = static_cast<uint32_t>(segments_.size());
  if (node.payload != 0) last.next = added;
  node.payload = Both(node.payload == 0 ? added : Low(node.payload), added);
  segments_.push_back({.first = first, .count = count});
}

void PickleParser::SetState(Id object, Id state) {
  if (!status_.ok()) return;
  const Node& node = pickle_.nodes_[object];
  if (node.kind != PickleKind::kObject) {
    return Fail(
        absl::StrCat("state for ", Describe(node.kind), ", which takes none"));
  }
  Id& slot =
      pickle_.edges_[segments_[Low(node.payload)].first + Pickle::kState];
  if (slot != Pickle::kAbsent) return Fail("state for an object that has it");
  slot = state;
}

void PickleParser::JoinSegments() {
  std::vector<Id>& edges = pickle_.edges_;
  for (Node& node : pickle_.nodes_) {
    if (!Grows(node.kind)) continue;
    const Segment* segment = &segments_[Low(node.payload)];
    if (segment->next == 0) {
      node.payload = segment->first;
      continue;
    }
    node.payload = edges.size();
    for (;; segment = &segments_[segment->next]) {
      const size_t end = edges.size();
      edges.resize(end + segment->count);
      std::copy_n(edges.begin() + segment->first, segment->count,
                  edges.begin() + static_cast<std::ptrdiff_t>(end));
      if (segment->next == 0) break;
    }
  }
}

absl::Status PickleParser::Finish() {
  if (stack_.size() != 1 || !marks_.empty()) {
    Fail(absl::StrCat("at the end ", stack_.size(), " values and ",
                      marks_.size(), " marks are left, expected one value"));
  } else if (position_ != input_.size()) {
    Fail(absl::StrCat(input_.size() - position_, " bytes follow the end"));
  }
  if (!status_.ok()) return status_;
  pickle_.root_ = stack_.front();
  JoinSegments();
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
