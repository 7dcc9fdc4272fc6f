// A pickle as a tree of inert values. Nothing that it names is imported, and
// nothing is called: what would be a call is a node that says so.
//
// Read are protocols 2 to 5 (Python's Lib/pickletools.py), but for buffers
// outside the pickle, and the forms of protocol 0 and 1 that no program writes
// any more.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_PICKLE_H_
#define SHARDSHIFT_RESHARD_FORMATS_PICKLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/pickle_globals.h"

namespace shardshift::reshard {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kBigInt,  // beyond 64 bits: little-endian two's complement, in Text()
  kFloat,
  kString,  // UTF-8
  kBytes,
  kTuple,
  kList,
  kDict,
  kSet,
  kGlobal,        // a name within a module
  kObject,        // a global called with arguments, and what was then put in
  kPersistentId,  // a thing outside the pickle, such as a tensor's storage
};

// "a string", for messages.
absl::string_view Describe(PickleKind kind);

struct PickleOptions {
  // Whether a global may occur at all. Those of IsRefusedGlobal() may not,
  // whatever this says.
  std::function<bool(absl::string_view module, absl::string_view name)>
      is_allowed = IsCheckpointGlobal;
  // At most kMaxPickleBytes.
  int64_t max_bytes = int64_t{1} << 30;
  int64_t max_nodes = int64_t{1} << 28;
  int64_t max_text_bytes = int64_t{1} << 30;
};
// Keeps every number of nodes and items within 32 bits.
inline constexpr int64_t kMaxPickleBytes = int64_t{1} << 30;

// Owns the bytes and the nodes. A node that the pickle uses in several places
// is one node here, and it may contain itself: whoever walks must count their
// steps (WalkPickle() in pickle_value.h does). Thread-safe once parsed.
class Pickle {
 public:
  using Id = uint32_t;  // of a node, less than num_nodes()

  // Memory and time are linear in the input: at most about 60 bytes for each.
  // Errors, all with the position: DataLoss for what is no whole pickle;
  // Unimplemented for an operation that is not read; PermissionDenied for a
  // global that may not occur, by name; ResourceExhausted beyond a limit.
  static absl::StatusOr<Pickle> Parse(std::string bytes,
                                      const PickleOptions& options = {});

  Id root() const { return root_; }
  Id num_nodes() const { return static_cast<Id>(nodes_.size()); }
  PickleKind kind(Id id) const { return nodes_[id].kind; }

  // REQUIRES, of each: the kind that it is about.
  bool Bool(Id id) const { return nodes_[id].payload != 0; }
  int64_t Int(Id id) const { return static_cast<int64_t>(nodes_[id].payload); }
  double Float(Id id) const;
  // Of a string, bytes or kBigInt.
  absl::string_view Text(Id id) const {
    return absl::string_view(bytes_).substr(nodes_[id].payload,
                                            nodes_[id].count);
  }
  // Of a global. `__builtin__` of Python 2 is `builtins`.
  absl::string_view Module(Id id) const;
  absl::string_view Name(Id id) const;
  // For a node of any kind.
  bool IsGlobal(Id id, absl::string_view module, absl::string_view name) const;
  bool IsObjectOf(Id id, absl::string_view module,
                  absl::string_view name) const;

  // The items of a tuple, list or set; of a dict, keys and values in turn; of
  // an object, what was appended to it, or, if HasPairs(), keys and values; of
  // any other node, none.
  std::span<const Id> Items(Id id) const;
  bool HasPairs(Id id) const { return nodes_[id].growth == Growth::kPairs; }

  // Of an object: a global; a tuple; what BUILD gave it; the keyword arguments
  // (a dict).
  Id Callable(Id id) const { return Fixed(id, kCallable); }
  Id Args(Id id) const { return Fixed(id, kArgs); }
  std::optional<Id> State(Id id) const { return Optional(id, kState); }
  std::optional<Id> Kwargs(Id id) const { return Optional(id, kKwargs); }

  // Of a persistent id: what identifies it.
  Id PersistentId(Id id) const { return static_cast<Id>(nodes_[id].payload); }

 private:
  friend class PickleParser;
  static constexpr Id kAbsent = ~Id{0};
  // An object's edges begin with these.
  enum FixedEdge : uint8_t { kCallable, kArgs, kState, kKwargs, kNumFixed };
  // What was put into a list, set, dict or object.
  enum class Growth : uint8_t { kNothing, kItems, kPairs };

  // payload: a bool, an int, a float's bits; where a text begins in bytes_;
  // the first of `count` edges; the nodes of a global's module and, in the
  // upper half, name; a persistent id's node.
  struct Node {
    uint64_t payload = 0;
    uint32_t count = 0;
    PickleKind kind = PickleKind::kNone;
    Growth growth = Growth::kNothing;
  };

  Id Fixed(Id id, FixedEdge edge) const {
    return edges_[nodes_[id].payload + edge];
  }
  std::optional<Id> Optional(Id id, FixedEdge edge) const {
    const Id found = Fixed(id, edge);
    return found == kAbsent ? std::nullopt : std::optional(found);
  }

  std::string bytes_;
  std::vector<Node> nodes_;
  std::vector<Id> edges_;
  Id root_ = 0;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_PICKLE_H_
