// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle_value.h"

#include <algorithm>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/utf8.h"

namespace shardshift::reshard {
namespace {

using Id = Pickle::Id;

bool IsSequence(PickleKind kind) {
  return kind == PickleKind::kList || kind == PickleKind::kTuple ||
         kind == PickleKind::kSet;
}

// More of a way is not kept: who walks further has lost theirs.
constexpr int32_t kMaxSteps = 256;
constexpr size_t kMaxKeyBytes = 100;

// The code points of a text as bytes. Nullopt if one is above 255.
std::optional<std::string> EncodeLatin1(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<uint8_t>(text[i]);
    if (lead < 0x80) {
      bytes.push_back(text[i]);
    } else if (lead == 0xC2 || lead == 0xC3) {
      ++i;
      bytes.push_back(static_cast<char>(
          (lead & 3) << 6 | (static_cast<uint8_t>(text[i]) & 0x3F)));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace

std::string PickleValue::StepText(Label label, uint32_t number) const {
  switch (label) {
    case Label::kNothing:
      return "";
    case Label::kIndex:
      return absl::StrCat("[", number, "]");
    case Label::kArgs:
      return ".args";
    case Label::kKwargs:
      return ".kwargs";
    case Label::kKey:
      break;
  }
  switch (pickle_->kind(number)) {
    case PickleKind::kString:
      return absl::StrCat(".", pickle_->Text(number).substr(0, kMaxKeyBytes));
    case PickleKind::kInt:
      return absl::StrCat("[", pickle_->Int(number), "]");
    default:
      return absl::StrCat("[", Describe(pickle_->kind(number)), "]");
  }
}

std::string PickleValue::path() const {
  std::vector<std::string> steps = {StepText(label_, number_)};
  for (const Step* step = before_.get(); step; step = step->before.get()) {
    steps.push_back(StepText(step->label, step->number));
  }
  std::reverse(steps.begin(), steps.end());
  std::string path = absl::StrJoin(steps, "");
  if (path.starts_with('.')) path.erase(0, 1);
  return path;
}

std::shared_ptr<const PickleValue::Step> PickleValue::Here() const {
  const int32_t depth = before_ ? before_->depth + 1 : 0;
  if (depth >= kMaxSteps) return before_;
  if (label_ == Label::kNothing) return before_;
  return std::make_shared<Step>(Step{
      .before = before_, .label = label_, .number = number_, .depth = depth});
}

std::string PickleValue::Where() const {
  std::string where = path();
  return where.empty() ? "the pickle" : where;
}

absl::Status PickleValue::Error(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(Where(), " ", what));
}

absl::Status PickleValue::Wrong(absl::string_view expected) const {
  std::string found(Describe(kind()));
  if (kind() == PickleKind::kObject) {
    const Id callable = pickle_->Callable(id_);
    found = absl::StrCat("an object of ", pickle_->Module(callable), ".",
                         pickle_->Name(callable));
  } else if (kind() == PickleKind::kGlobal) {
    found = absl::StrCat(pickle_->Module(id_), ".", pickle_->Name(id_));
  }
  return Error(absl::StrCat("is ", found, ", expected ", expected));
}

absl::StatusOr<bool> PickleValue::AsBool() const {
  if (kind() != PickleKind::kBool) return Wrong("a bool");
  return pickle_->Bool(id_);
}

absl::StatusOr<int64_t> PickleValue::AsInt() const {
  if (kind() != PickleKind::kInt) return Wrong("an int");
  return pickle_->Int(id_);
}

absl::StatusOr<double> PickleValue::AsDouble() const {
  if (kind() == PickleKind::kInt) return static_cast<double>(pickle_->Int(id_));
  if (kind() != PickleKind::kFloat) return Wrong("a number");
  return pickle_->Float(id_);
}

absl::StatusOr<absl::string_view> PickleValue::AsString() const {
  if (kind() != PickleKind::kString) return Wrong("a string");
  return pickle_->Text(id_);
}

absl::StatusOr<std::string> PickleValue::AsBytes() const {
  if (kind() == PickleKind::kBytes) return std::string(pickle_->Text(id_));
  if (IsObjectOf("builtins", "bytes") || IsObjectOf("builtins", "bytearray")) {
    const std::span<const Id> args = pickle_->Items(pickle_->Args(id_));
    if (args.empty()) return std::string();
    const PickleValue inner(*this, Here(), args[0], Label::kArgs);
    // Of another encoding of the text, or of itself, there is no end.
    if (inner.kind() == PickleKind::kBytes ||
        inner.IsObjectOf("_codecs", "encode")) {
      return inner.AsBytes();
    }
  }
  if (!IsObjectOf("_codecs", "encode")) return Wrong("bytes");
  SS_ASSIGN_OR_RETURN(const PickleValue text, Args().At(0));
  SS_ASSIGN_OR_RETURN(const absl::string_view chars, text.AsString());
  SS_ASSIGN_OR_RETURN(const PickleValue encoding, Args().At(1));
  SS_ASSIGN_OR_RETURN(const absl::string_view name, encoding.AsString());
  if (name != "latin1" && name != "latin-1") {
    return Error(
        absl::StrCat("is text encoded as ", name, ", expected latin1"));
  }
  std::optional<std::string> bytes = EncodeLatin1(chars);
  if (!bytes) return Error("is latin1 with characters beyond 255");
  return *std::move(bytes);
}

absl::StatusOr<std::span<const Id>> PickleValue::ListItems() const {
  Id held = id_;
  if (IsObjectOf("torch", "Size") || IsObjectOf("builtins", "set") ||
      IsObjectOf("builtins", "frozenset")) {
    const std::span<const Id> args = pickle_->Items(pickle_->Args(id_));
    if (args.size() != 1 || !IsSequence(pickle_->kind(args[0]))) {
      return Wrong("one with a sequence for its argument");
    }
    held = args[0];
  } else if (!IsSequence(kind()) &&
             (kind() != PickleKind::kObject || IsMapping())) {
    return Wrong("a list");
  }
  return pickle_->Items(held);
}

absl::StatusOr<size_t> PickleValue::ListSize() const {
  SS_ASSIGN_OR_RETURN(const std::span<const Id> ids, ListItems());
  return ids.size();
}

absl::StatusOr<std::vector<PickleValue>> PickleValue::AsList() const {
  SS_ASSIGN_OR_RETURN(const std::span<const Id> ids, ListItems());
  std::vector<PickleValue> items;
  items.reserve(ids.size());
  const auto here = Here();
  for (size_t i = 0; i < ids.size(); ++i) {
    items.push_back(PickleValue(*this, here, ids[i], Label::kIndex, i));
  }
  return items;
}

absl::StatusOr<std::vector<int64_t>> PickleValue::AsInts() const {
  SS_ASSIGN_OR_RETURN(const std::span<const Id> ids, ListItems());
  std::vector<int64_t> ints;
  ints.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (pickle_->kind(ids[i]) != PickleKind::kInt) {
      return PickleValue(*this, Here(), ids[i], Label::kIndex, i)
          .Wrong("an int");
    }
    ints.push_back(pickle_->Int(ids[i]));
  }
  return ints;
}

std::optional<std::span<const Id>> PickleValue::Pairs() const {
  if (kind() == PickleKind::kDict) return pickle_->Items(id_);
  if (kind() != PickleKind::kObject) return std::nullopt;
  if (pickle_->HasPairs(id_)) return pickle_->Items(id_);
  if (IsObjectOf("collections", "Counter")) {
    const std::span<const Id> args = pickle_->Items(pickle_->Args(id_));
    if (args.size() == 1 && pickle_->kind(args[0]) == PickleKind::kDict) {
      return pickle_->Items(args[0]);
    }
  }
  if (pickle_->Items(id_).empty() &&
      (IsObjectOf("collections", "Counter") ||
       IsObjectOf("collections", "OrderedDict") ||
       IsObjectOf("collections", "defaultdict"))) {
    return std::span<const Id>();
  }
  return std::nullopt;
}

bool PickleValue::IsMapping() const { return Pairs().has_value(); }

std::vector<PickleValue::Entry> PickleValue::Entries(
    std::span<const Id> pairs) const {
  std::vector<Entry> entries;
  entries.reserve(pairs.size() / 2);
  const auto here = Here();
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    entries.emplace_back(
        PickleValue(*this, here, pairs[i], Label::kKey, pairs[i]),
        PickleValue(*this, here, pairs[i + 1], Label::kKey, pairs[i]));
  }
  return entries;
}

absl::StatusOr<std::vector<PickleValue::Entry>> PickleValue::AsEntries() const {
  const auto pairs = Pairs();
  if (!pairs) return Wrong("a dict");
  return Entries(*pairs);
}

absl::StatusOr<std::optional<PickleValue>> PickleValue::FindIn(
    std::span<const Id> pairs, absl::string_view key) const {
  std::optional<PickleValue> found;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pickle_->kind(pairs[i]) != PickleKind::kString ||
        pickle_->Text(pairs[i]) != key) {
      continue;
    }
    if (found) return Error(absl::StrCat("has \"", key, "\" twice"));
    found = PickleValue(*this, Here(), pairs[i + 1], Label::kKey, pairs[i]);
  }
  return found;
}

absl::StatusOr<std::optional<PickleValue>> PickleValue::Find(
    absl::string_view key) const {
  const auto pairs = Pairs();
  if (!pairs) return Wrong(absl::StrCat("a dict with \"", key, "\""));
  return FindIn(*pairs, key);
}

absl::StatusOr<PickleValue> PickleValue::Get(absl::string_view key) const {
  SS_ASSIGN_OR_RETURN(std::optional<PickleValue> found, Find(key));
  if (found) return *std::move(found);
  return absl::NotFoundError(absl::StrCat(Where(), " has no \"", key, "\""));
}

absl::StatusOr<std::vector<Id>> PickleValue::StateDicts() const {
  if (kind() != PickleKind::kObject) return Wrong("an object");
  const std::optional<Id> state = pickle_->State(id_);
  if (!state || pickle_->kind(*state) == PickleKind::kNone) {
    return std::vector<Id>();
  }
  // A class with slots has the dict of the others and that of the slots.
  const auto parts = pickle_->kind(*state) == PickleKind::kTuple &&
                             pickle_->Items(*state).size() == 2
                         ? pickle_->Items(*state)
                         : std::span(&*state, 1);
  std::vector<Id> dicts;
  for (const Id part : parts) {
    if (pickle_->kind(part) == PickleKind::kNone) continue;
    if (pickle_->kind(part) != PickleKind::kDict) {
      return Wrong("one with attributes");
    }
    dicts.push_back(part);
  }
  return dicts;
}

absl::StatusOr<std::optional<PickleValue>> PickleValue::FindAttribute(
    absl::string_view name) const {
  SS_ASSIGN_OR_RETURN(const std::vector<Id> dicts, StateDicts());
  for (const Id dict : dicts) {
    SS_ASSIGN_OR_RETURN(auto found, FindIn(pickle_->Items(dict), name));
    if (found) return found;
  }
  return std::nullopt;
}

absl::StatusOr<PickleValue> PickleValue::Attribute(
    absl::string_view name) const {
  SS_ASSIGN_OR_RETURN(std::optional<PickleValue> found, FindAttribute(name));
  if (found) return *std::move(found);
  return absl::NotFoundError(
      absl::StrCat(Where(), " has no attribute \"", name, "\""));
}

absl::StatusOr<std::vector<PickleValue::Entry>> PickleValue::Attributes()
    const {
  SS_ASSIGN_OR_RETURN(const std::vector<Id> dicts, StateDicts());
  std::vector<Entry> all;
  for (const Id dict : dicts) {
    std::vector<Entry> entries = Entries(pickle_->Items(dict));
    std::move(entries.begin(), entries.end(), std::back_inserter(all));
  }
  return all;
}

absl::StatusOr<PickleValue> PickleValue::At(size_t index) const {
  if (!IsSequence(kind()) || index >= pickle_->Items(id_).size()) {
    return Wrong(absl::StrCat("a sequence of ", index + 1, " items or more"));
  }
  return PickleValue(*this, Here(), pickle_->Items(id_)[index], Label::kIndex,
                     index);
}

PickleValue PickleValue::Args() const {
  return {*this, Here(), pickle_->Args(id_), Label::kArgs};
}

absl::StatusOr<PickleValue> PickleValue::State() const {
  const std::optional<Id> state =
      kind() == PickleKind::kObject ? pickle_->State(id_) : std::nullopt;
  if (!state) return Wrong("an object with a state");
  return PickleValue(*this, Here(), *state, Label::kNothing);
}

absl::StatusOr<PickleEnumMember> PickleValue::AsEnum() const {
  if (kind() != PickleKind::kObject) return Wrong("a member of an enum");
  if (IsObjectOf("builtins", "getattr")) {
    SS_ASSIGN_OR_RETURN(const PickleValue type, Args().At(0));
    SS_ASSIGN_OR_RETURN(const PickleValue name, Args().At(1));
    if (type.kind() != PickleKind::kGlobal) return type.Wrong("a class");
    SS_ASSIGN_OR_RETURN(const absl::string_view member, name.AsString());
    return PickleEnumMember{.type = pickle_->Name(type.id()), .name = member};
  }
  if (pickle_->Items(pickle_->Args(id_)).size() != 1) {
    return Wrong("a member of an enum");
  }
  SS_ASSIGN_OR_RETURN(PickleValue value, Args().At(0));
  return PickleEnumMember{.type = pickle_->Name(pickle_->Callable(id_)),
                          .value = std::move(value)};
}

absl::StatusOr<std::string> PickleValue::AsPath() const {
  if (kind() == PickleKind::kString) return std::string(pickle_->Text(id_));
  const bool is_path =
      kind() == PickleKind::kObject &&
      absl::StartsWith(pickle_->Module(pickle_->Callable(id_)), "pathlib") &&
      absl::EndsWith(pickle_->Name(pickle_->Callable(id_)), "PosixPath");
  if (!is_path) {
    return Wrong("a path");
  }
  SS_ASSIGN_OR_RETURN(const std::vector<PickleValue> items, Args().AsList());
  std::string path;
  for (const PickleValue& item : items) {
    SS_ASSIGN_OR_RETURN(const absl::string_view part, item.AsString());
    const bool joined = path.empty() || path.back() == '/';
    absl::StrAppend(&path, joined ? "" : "/", part);
  }
  return path;
}

}  // namespace shardshift::reshard
