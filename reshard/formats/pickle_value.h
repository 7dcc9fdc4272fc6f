// Reading the values of a pickle by name, with errors that say where:
// "optimizer.param_groups[0].lr is a string, expected a number".
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_PICKLE_VALUE_H_
#define SHARDSHIFT_RESHARD_FORMATS_PICKLE_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/pickle.h"

namespace shardshift::reshard {

struct PickleEnumMember;

// A node of a pickle, which outlives it, and how one came there. Errors are
// DataLoss for a value of another kind than asked for, or a key that is there
// twice; NotFound for one that is not there.
class PickleValue {
 public:
  using Entry = std::pair<PickleValue, PickleValue>;

  explicit PickleValue(const Pickle& pickle)
      : PickleValue(pickle, pickle.root()) {}
  PickleValue(const Pickle& pickle, Pickle::Id id)
      : pickle_(&pickle), id_(id) {}

  const Pickle& pickle() const { return *pickle_; }
  Pickle::Id id() const { return id_; }
  // Such as "a.b[2]", "" for where one began.
  std::string path() const;
  PickleKind kind() const { return pickle_->kind(id_); }
  bool IsNone() const { return kind() == PickleKind::kNone; }
  bool IsGlobal(absl::string_view module, absl::string_view name) const {
    return pickle_->IsGlobal(id_, module, name);
  }
  bool IsObjectOf(absl::string_view module, absl::string_view name) const {
    return pickle_->IsObjectOf(id_, module, name);
  }

  absl::StatusOr<bool> AsBool() const;
  absl::StatusOr<int64_t> AsInt() const;
  // Of an int, too.
  absl::StatusOr<double> AsDouble() const;
  // Valid as long as the pickle.
  absl::StatusOr<absl::string_view> AsString() const;
  // bytes, a bytearray, or what protocol 2 writes for bytes: a text and
  // `_codecs.encode`.
  absl::StatusOr<std::string> AsBytes() const;

  // Of a list, tuple or set, a torch.Size, a deque, or an object that items
  // were appended to.
  absl::StatusOr<std::vector<PickleValue>> AsList() const;
  absl::StatusOr<size_t> ListSize() const;
  // Of ints only.
  absl::StatusOr<std::vector<int64_t>> AsInts() const;
  // Whether AsEntries() works: a dict, an OrderedDict, defaultdict or Counter,
  // or an object that keys were put into.
  bool IsMapping() const;
  absl::StatusOr<std::vector<Entry>> AsEntries() const;

  // The value of a string key of such a mapping. Takes a time linear in its
  // size.
  absl::StatusOr<PickleValue> Get(absl::string_view key) const;
  absl::StatusOr<std::optional<PickleValue>> Find(absl::string_view key) const;
  // An attribute of an object, from its state.
  absl::StatusOr<PickleValue> Attribute(absl::string_view name) const;
  absl::StatusOr<std::optional<PickleValue>> FindAttribute(
      absl::string_view name) const;
  // All of them.
  absl::StatusOr<std::vector<Entry>> Attributes() const;

  // Of an object. REQUIRES: it is one.
  PickleValue Args() const;
  // What BUILD gave it. Errors: DataLoss for what is no object, or has none.
  absl::StatusOr<PickleValue> State() const;
  // Item `index` of a tuple or list.
  absl::StatusOr<PickleValue> At(size_t index) const;

  // What it holds, in order: the values of a mapping, or items; arguments,
  // keyword arguments, state; of a persistent id, what identifies it.
  size_t num_children() const;
  // REQUIRES: index < num_children().
  PickleValue Child(size_t index) const;

  absl::StatusOr<PickleEnumMember> AsEnum() const;
  // "/a/b" of a pathlib path, a string itself.
  absl::StatusOr<std::string> AsPath() const;

  // "PATH is a list, expected WHAT", and what to make of other faults.
  absl::Status Wrong(absl::string_view expected) const;
  absl::Status Error(absl::string_view what) const;
  // The path, or "the pickle" for the root.
  std::string Where() const;

 private:
  enum class Label : uint8_t { kNothing, kKey, kIndex, kArgs, kKwargs };
  // One step from a value to what it holds, and the steps before it.
  struct Step {
    std::shared_ptr<const Step> before;
    Label label = Label::kNothing;
    uint32_t number = 0;  // the node of a key, or an index
    int32_t depth = 0;
  };

  PickleValue(const PickleValue& from, std::shared_ptr<const Step> step,
              Pickle::Id id, Label label, size_t number = 0)
      : pickle_(from.pickle_),
        before_(std::move(step)),
        id_(id),
        number_(static_cast<uint32_t>(number)),
        label_(label) {}
  // The way here, for what it holds to share.
  std::shared_ptr<const Step> Here() const;
  std::string StepText(Label label, uint32_t number) const;

  absl::StatusOr<std::span<const Pickle::Id>> ListItems() const;
  absl::StatusOr<std::optional<PickleValue>> FindIn(
      std::span<const Pickle::Id> pairs, absl::string_view key) const;
  // Keys and values in turn; nullopt for what is no mapping.
  std::optional<std::span<const Pickle::Id>> Pairs() const;
  // The dicts that an object's state consists of.
  absl::StatusOr<std::vector<Pickle::Id>> StateDicts() const;
  std::vector<Entry> Entries(std::span<const Pickle::Id> pairs) const;

  const Pickle* pickle_;
  std::shared_ptr<const Step> before_;
  Pickle::Id id_;
  uint32_t number_ = 0;  // as a Step's
  Label label_ = Label::kNothing;
};

// A member of an enum: its name, from getattr(class, name), or its value, from
// class(value).
struct PickleEnumMember {
  absl::string_view type;  // the name of the class
  std::optional<absl::string_view> name = std::nullopt;
  std::optional<PickleValue> value = std::nullopt;
};

struct WalkLimits {
  int64_t max_visits = int64_t{1} << 24;
  int64_t max_depth = 256;
};

// Calls visit(value, depth) for `root`, then, where that gives true, for its
// children. A node is visited as often as it is reached.
// Errors: ResourceExhausted beyond a limit, with the path; that of `visit`.
absl::Status WalkPickle(const PickleValue& root, const WalkLimits& limits,
                        absl::FunctionRef<absl::StatusOr<bool>(
                            const PickleValue& value, int64_t depth)>
                            visit);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_PICKLE_VALUE_H_
