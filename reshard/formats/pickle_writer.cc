// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle_writer.h"

#include <bit>
#include <span>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace shardshift::reshard {
namespace {

std::string GlobalText(absl::string_view module, absl::string_view name) {
  return absl::StrCat(module, "\n", name, "\n");
}

template <typename Entries>
PyValue::Items InTurn(Entries entries) {
  PyValue::Items items;
  items.reserve(2 * entries.size());
  for (auto& [key, value] : entries) {
    if constexpr (std::is_same_v<Entries, PyValue::Attributes>) {
      items.push_back(PyValue::Str(key));
    } else {
      items.push_back(std::move(key));
    }
    items.push_back(std::move(value));
  }
  return items;
}

// Each byte as the character of its number.
std::string DecodeLatin1(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x80) {
      text.push_back(c);
    } else {
      text.push_back(static_cast<char>(0xC0 | byte >> 6));
      text.push_back(static_cast<char>(0x80 | (byte & 0x3F)));
    }
  }
  return text;
}

}  // namespace

PyValue PyValue::Bool(bool value) {
  PyValue result(Kind::kBool, "", {});
  result.bits_ = value ? 1 : 0;
  return result;
}

PyValue PyValue::Int(int64_t value) {
  PyValue result(Kind::kInt, "", {});
  result.bits_ = static_cast<uint64_t>(value);
  return result;
}

PyValue PyValue::Float(double value) {
  PyValue result(Kind::kFloat, "", {});
  result.bits_ = std::bit_cast<uint64_t>(value);
  return result;
}

PyValue PyValue::Str(absl::string_view utf8) {
  return {Kind::kStr, std::string(utf8), {}};
}

PyValue PyValue::Bytes(absl::string_view bytes) {
  return {Kind::kBytes, std::string(bytes), {}};
}

PyValue PyValue::Tuple(Items items) {
  return {Kind::kTuple, "", std::move(items)};
}

PyValue PyValue::List(Items items) {
  return {Kind::kList, "", std::move(items)};
}

PyValue PyValue::Dict(Entries entries) {
  return {Kind::kDict, "", InTurn(std::move(entries))};
}

PyValue PyValue::Dict(Attributes entries) {
  return {Kind::kDict, "", InTurn(std::move(entries))};
}

PyValue PyValue::OrderedDict(Entries entries) {
  return {Kind::kOrderedDict, GlobalText("collections", "OrderedDict"),
          InTurn(std::move(entries))};
}

PyValue PyValue::Global(absl::string_view module, absl::string_view name) {
  return {Kind::kGlobal, GlobalText(module, name), {}};
}

PyValue PyValue::Call(absl::string_view module, absl::string_view name,
                      Items args) {
  return {Kind::kCall, GlobalText(module, name), std::move(args)};
}

PyValue PyValue::Object(absl::string_view module, absl::string_view name,
                        PyValue state) {
  return {Kind::kObject, GlobalText(module, name), {std::move(state)}};
}

PyValue PyValue::WithState(PyValue object, PyValue state) {
  return {Kind::kWithState, "", {std::move(object), std::move(state)}};
}

PyValue PyValue::WithEntries(PyValue object, Entries entries) {
  Items items = InTurn(std::move(entries));
  items.insert(items.begin(), std::move(object));
  return {Kind::kWithEntries, "", std::move(items)};
}

PyValue PyValue::Namespace(Attributes attributes) {
  return Object("argparse", "Namespace", Dict(std::move(attributes)));
}

PyValue PyValue::PersistentId(PyValue id) {
  return {Kind::kPersistentId, "", {std::move(id)}};
}

class PickleWriter {
 public:
  void Put(const PyValue& value);
  void PutByte(uint8_t byte) { bytes_.push_back(static_cast<char>(byte)); }
  std::string Take() && { return std::move(bytes_); }

 private:
  void PutNumber(uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) {
      PutByte(static_cast<uint8_t>(value >> (8 * i)));
    }
  }
  void PutInt(int64_t value);
  void PutText(absl::string_view text);
  void PutGlobal(absl::string_view text) {
    PutByte('c');
    absl::StrAppend(&bytes_, text);
  }
  void PutTuple(const PyValue::Items& items);
  // Into the container on the stack.
  void PutItems(std::span<const PyValue> items, uint8_t opcode);

  std::string bytes_;
};

void PickleWriter::PutInt(int64_t value) {
  if (value >= 0 && value < 256) {
    PutByte('K');
    PutNumber(value, 1);
  } else if (value >= 0 && value < 65536) {
    PutByte('M');
    PutNumber(value, 2);
  } else if (value == static_cast<int32_t>(value)) {
    PutByte('J');
    PutNumber(value, 4);
  } else {
    PutByte(0x8a);
    PutNumber(8, 1);
    PutNumber(value, 8);
  }
}

void PickleWriter::PutText(absl::string_view text) {
  PutByte('X');
  PutNumber(text.size(), 4);
  absl::StrAppend(&bytes_, text);
}

void PickleWriter::PutTuple(const PyValue::Items& items) {
  if (items.empty()) return PutByte(')');
  if (items.size() > 3) PutByte('(');
  for (const PyValue& item : items) Put(item);
  PutByte(items.size() > 3 ? 't' : static_cast<uint8_t>(0x84 + items.size()));
}

void PickleWriter::PutItems(std::span<const PyValue> items, uint8_t opcode) {
  if (items.empty()) return;
  PutByte('(');
  for (const PyValue& item : items) Put(item);
  PutByte(opcode);
}

void PickleWriter::Put(const PyValue& value) {
  using Kind = PyValue::Kind;
  switch (value.kind_) {
    case Kind::kNone:
      return PutByte('N');
    case Kind::kBool:
      return PutByte(value.bits_ != 0 ? 0x88 : 0x89);
    case Kind::kInt:
      return PutInt(static_cast<int64_t>(value.bits_));
    case Kind::kFloat:
      PutByte('G');
      return PutNumber(__builtin_bswap64(value.bits_), 8);
    case Kind::kStr:
      return PutText(value.text_);
    case Kind::kBytes:
      PutGlobal(GlobalText("_codecs", "encode"));
      PutText(DecodeLatin1(value.text_));
      PutText("latin1");
      PutByte(0x86);
      return PutByte('R');
    case Kind::kTuple:
      return PutTuple(value.items_);
    case Kind::kList:
      PutByte(']');
      return PutItems(value.items_, 'e');
    case Kind::kDict:
      PutByte('}');
      return PutItems(value.items_, 'u');
    case Kind::kOrderedDict:
      PutGlobal(value.text_);
      PutByte(')');
      PutByte('R');
      return PutItems(value.items_, 'u');
    case Kind::kGlobal:
      return PutGlobal(value.text_);
    case Kind::kCall:
      PutGlobal(value.text_);
      PutTuple(value.items_);
      return PutByte('R');
    case Kind::kObject:
      PutGlobal(value.text_);
      PutByte(')');
      PutByte(0x81);
      Put(value.items_.front());
      return PutByte('b');
    case Kind::kWithState:
      Put(value.items_[0]);
      Put(value.items_[1]);
      return PutByte('b');
    case Kind::kWithEntries:
      Put(value.items_[0]);
      return PutItems(std::span(value.items_).subspan(1), 'u');
    case Kind::kPersistentId:
      Put(value.items_.front());
      return PutByte('Q');
  }
}

std::string WritePickle(const PyValue& value) {
  PickleWriter writer;
  writer.PutByte(0x80);
  writer.PutByte(2);
  writer.Put(value);
  writer.PutByte('.');
  return std::move(writer).Take();
}

}  // namespace shardshift::reshard
