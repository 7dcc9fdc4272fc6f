// What each operation of a pickle does to the stack.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/formats/pickle_parser.h"
#include "reshard/formats/utf8.h"

namespace shardshift::reshard {

absl::string_view PickleParser::Take(uint64_t num_bytes) {
  if (num_bytes > input_.size() - position_) {
    Fail(absl::StrCat("needs ", num_bytes, " more bytes, ",
                      input_.size() - position_, " are left"));
    return {};
  }
  const absl::string_view taken = input_.substr(position_, num_bytes);
  position_ += num_bytes;
  return taken;
}

uint64_t PickleParser::TakeUInt(int num_bytes) {
  const absl::string_view bytes = Take(static_cast<uint64_t>(num_bytes));
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return value;
}

absl::string_view PickleParser::TakeLine() {
  const size_t end = input_.find('\n', position_);
  if (end == absl::string_view::npos) {
    Fail("a line does not end");
    return {};
  }
  const absl::string_view line = Take(end - position_);
  Take(1);
  return line;
}

void PickleParser::Step(uint8_t opcode) {
  if (StepScalar(opcode) || StepText(opcode) || StepStack(opcode) ||
      StepContainer(opcode) || StepObject(opcode)) {
    return;
  }
  FailWith(absl::StatusCode::kUnimplemented,
           absl::StrFormat(
               "opcode 0x%02x is none of those that checkpoints are made of",
               opcode));
}

bool PickleParser::StepScalar(uint8_t opcode) {
  switch (opcode) {
    case 'N':
      PushNode(PickleKind::kNone);
      return true;
    case 0x88:  // NEWTRUE
    case 0x89:
      PushNode(PickleKind::kBool, opcode == 0x88);
      return true;
    case 'J':  // BININT
      PushNode(
          PickleKind::kInt,
          static_cast<uint64_t>(int64_t{static_cast<int32_t>(TakeUInt(4))}));
      return true;
    case 'K':  // BININT1
      PushNode(PickleKind::kInt, TakeUInt(1));
      return true;
    case 'M':  // BININT2
      PushNode(PickleKind::kInt, TakeUInt(2));
      return true;
    case 0x8a:  // LONG1
      PushLong(TakeUInt(1));
      return true;
    case 0x8b:  // LONG4; a length below zero is out of bounds, too
      PushLong(TakeUInt(4));
      return true;
    case 'G':  // BINFLOAT, the one number that is big-endian
      PushNode(PickleKind::kFloat, __builtin_bswap64(TakeUInt(8)));
      return true;
    default:
      return false;
  }
}

bool PickleParser::StepText(uint8_t opcode) {
  switch (opcode) {
    case 0x8c:  // SHORT_BINUNICODE
      PushText(PickleKind::kString, Take(TakeUInt(1)));
      return true;
    case 'X':  // BINUNICODE
      PushText(PickleKind::kString, Take(TakeUInt(4)));
      return true;
    case 0x8d:  // BINUNICODE8
      PushText(PickleKind::kString, Take(TakeUInt(8)));
      return true;
    case 'C':  // SHORT_BINBYTES
      PushText(PickleKind::kBytes, Take(TakeUInt(1)));
      return true;
    case 'B':  // BINBYTES
      PushText(PickleKind::kBytes, Take(TakeUInt(4)));
      return true;
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      PushText(PickleKind::kBytes, Take(TakeUInt(8)));
      return true;
    case 'U':  // SHORT_BINSTRING and BINSTRING: a str of Python 2
    case 'T': {
      const absl::string_view text = Take(TakeUInt(opcode == 'U' ? 1 : 4));
      PushText(IsUtf8(text) ? PickleKind::kString : PickleKind::kBytes, text);
      return true;
    }
    default:
      return false;
  }
}

bool PickleParser::StepStack(uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const uint64_t protocol = TakeUInt(1); protocol > 5) {
        Fail(absl::StrCat("protocol ", protocol, ", at most 5 is read"));
      }
      return true;
    case 0x95:  // FRAME: what follows is read as it comes
      if (TakeUInt(8) > input_.size() - position_) {
        Fail("the frame goes beyond the end");
      }
      return true;
    case '.':
      stopped_ = true;
      return true;
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case '0':  // POP, of a mark where nothing lies above it
      if (Room() == 0 && !marks_.empty()) {
        marks_.pop_back();
      } else {
        Pop();
      }
      return true;
    case '1':  // POP_MARK
      PopToMark();
      return true;
    case '2':  // DUP
      Push(Top());
      return true;
    case 'q':  // BINPUT
      Put(TakeUInt(1));
      return true;
    case 'r':  // LONG_BINPUT
      Put(TakeUInt(4));
      return true;
    case 0x94:  // MEMOIZE
      Put(memo_.size());
      return true;
    case 'h':  // BINGET
      Get(TakeUInt(1));
      return true;
    case 'j':  // LONG_BINGET
      Get(TakeUInt(4));
      return true;
    default:
      return false;
  }
}

bool PickleParser::StepContainer(uint8_t opcode) {
  switch (opcode) {
    case ')':
      PushTuple(0);
      return true;
    case 0x85:  // TUPLE1, TUPLE2, TUPLE3
    case 0x86:
    case 0x87:
      PushTuple(opcode - 0x84);
      return true;
    case 't':  // TUPLE
      if (marks_.empty()) {
        Fail("no mark on the stack");
      } else {
        const size_t count = Room();
        marks_.pop_back();
        PushTuple(count);
      }
      return true;
    case ']':
      PushNode(PickleKind::kList);
      return true;
    case '}':
      PushNode(PickleKind::kDict);
      return true;
    case 0x8f:  // EMPTY_SET
      PushNode(PickleKind::kSet);
      return true;
    case 'a': {  // APPEND
      const Id item = Pop();
      Append(Top(), {&item, 1}, Growth::kItems);
      return true;
    }
    case 's': {  // SETITEM
      const Id value = Pop();
      const Id pair[] = {Pop(), value};
      Append(Top(), pair, Growth::kPairs);
      return true;
    }
    case 'e':     // APPENDS
    case 0x90: {  // ADDITEMS
      const std::vector<Id> items = PopToMark();
      Append(Top(), items, Growth::kItems);
      return true;
    }
    case 'u': {  // SETITEMS
      const std::vector<Id> items = PopToMark();
      Append(Top(), items, Growth::kPairs);
      return true;
    }
    case 0x91: {  // FROZENSET
      const std::vector<Id> items = PopToMark();
      PushNode(PickleKind::kSet);
      Append(Top(), items, Growth::kItems);
      return true;
    }
    default:
      return false;
  }
}

bool PickleParser::StepObject(uint8_t opcode) {
  switch (opcode) {
    case 'c': {  // GLOBAL
      PushText(PickleKind::kString, TakeLine());
      PushText(PickleKind::kString, TakeLine());
      const Id name = Pop();
      PushGlobal(Pop(), name);
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const Id name = Pop();
      PushGlobal(Pop(), name);
      return true;
    }
    case 'R':   // REDUCE
    case 0x81:  // NEWOBJ
      PushObject(/*with_kwargs=*/false);
      return true;
    case 0x92:  // NEWOBJ_EX
      PushObject(/*with_kwargs=*/true);
      return true;
    case 'b': {  // BUILD
      const Id state = Pop();
      SetState(Top(), state);
      return true;
    }
    case 'Q': {  // BINPERSID
      const Id id = Pop();
      PushNode(PickleKind::kPersistentId, id);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace shardshift::reshard
