// The stack machine that a pickle is a program for. Only Pickle uses it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_PICKLE_PARSER_H_
#define SHARDSHIFT_RESHARD_FORMATS_PICKLE_PARSER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/pickle.h"

namespace shardshift::reshard {

// The first failure sticks, and ends the run: until then every call gives some
// node or zero.
class PickleParser {
 public:
  using Id = Pickle::Id;

  PickleParser(std::string bytes, const PickleOptions& options);
  // Once.
  absl::StatusOr<Pickle> Run();

 private:
  using Node = Pickle::Node;
  using Growth = Pickle::Growth;

  // Items that were put in a node at one time: `count` edges from `first`. The
  // segments of a node are a chain.
  struct Segment {
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t next = 0;  // 0: none; segment 0 is not used
  };

  // Each gives false if `opcode` is not of its family.
  bool StepScalar(uint8_t opcode);
  bool StepText(uint8_t opcode);
  bool StepStack(uint8_t opcode);
  bool StepContainer(uint8_t opcode);
  bool StepObject(uint8_t opcode);
  void Step(uint8_t opcode);

  void FailWith(absl::StatusCode code, absl::string_view what);
  void Fail(absl::string_view what) {
    FailWith(absl::StatusCode::kDataLoss, what);
  }

  absl::string_view Take(uint64_t num_bytes);
  uint64_t TakeUInt(int num_bytes);
  absl::string_view TakeLine();

  Id Add(const Node& node);
  void Push(Id id) { stack_.push_back(id); }
  void PushNode(PickleKind kind, uint64_t payload = 0) {
    Push(Add({.payload = payload, .kind = kind}));
  }
  void PushText(PickleKind kind, absl::string_view text);
  void PushLong(uint64_t num_bytes);
  void PushTuple(size_t count);
  void PushObject(bool with_kwargs);
  void PushGlobal(Id module, Id name);

  // How many items lie above the last mark.
  size_t Room() const;
  Id Top();
  Id Pop();
  // What lies above the last mark, which goes.
  std::vector<Id> PopToMark();

  void Put(uint64_t index);
  void Get(uint64_t index);

  void Append(Id container, std::span<const Id> items, Growth growth);
  void AddSegment(Node& node, std::span<const Id> items);
  void SetState(Id object, Id state);

  // Brings each node's segments together.
  void JoinSegments();
  absl::Status Finish();

  const PickleOptions& options_;
  Pickle pickle_;
  absl::string_view input_;
  size_t position_ = 0;
  size_t opcode_position_ = 0;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::vector<Id> memo_;
  std::vector<Segment> segments_;
  absl::Status status_;
  bool stopped_ = false;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_PICKLE_PARSER_H_
