// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle.h"

#include <array>
#include <bit>

#include "reshard/formats/pickle_parser.h"

namespace shardshift::reshard {

absl::string_view Describe(PickleKind kind) {
  static constexpr auto kDescriptions = std::to_array<absl::string_view>(
      {"None", "a bool", "an int", "an int of more than 64 bits", "a float",
       "a string", "bytes", "a tuple", "a list", "a dict", "a set", "a global",
       "an object", "a persistent id"});
  return kDescriptions[static_cast<size_t>(kind)];
}

absl::StatusOr<Pickle> Pickle::Parse(std::string bytes,
                                     const PickleOptions& options) {
  return PickleParser(std::move(bytes), options).Run();
}

double Pickle::Float(Id id) const {
  return std::bit_cast<double>(nodes_[id].payload);
}

absl::string_view Pickle::Module(Id id) const {
  const absl::string_view module = Text(static_cast<Id>(nodes_[id].payload));
  return module == "__builtin__" ? "builtins" : module;
}

absl::string_view Pickle::Name(Id id) const {
  return Text(static_cast<Id>(nodes_[id].payload >> 32));
}

bool Pickle::IsGlobal(Id id, absl::string_view module,
                      absl::string_view name) const {
  return kind(id) == PickleKind::kGlobal && Name(id) == name &&
         Module(id) == module;
}

bool Pickle::IsObjectOf(Id id, absl::string_view module,
                        absl::string_view name) const {
  return kind(id) == PickleKind::kObject &&
         IsGlobal(Callable(id), module, name);
}

std::span<const Pickle::Id> Pickle::Items(Id id) const {
  const Node& node = nodes_[id];
  if (node.kind < PickleKind::kTuple || node.kind == PickleKind::kGlobal ||
      node.kind == PickleKind::kPersistentId) {
    return {};
  }
  const auto edges = std::span(edges_).subspan(node.payload, node.count);
  return node.kind == PickleKind::kObject ? edges.subspan(kNumFixed) : edges;
}

}  // namespace shardshift::reshard
