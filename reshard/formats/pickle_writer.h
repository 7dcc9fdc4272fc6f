// Python values as a pickle of protocol 2, which torch.load(weights_only=True)
// reads, as do all versions of Python 3.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_PICKLE_WRITER_H_
#define SHARDSHIFT_RESHARD_FORMATS_PICKLE_WRITER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// A tree of values to be written. Built and written by recursion: REQUIRES at
// most 1000 values one in the other, and texts of less than 2^32 bytes.
class PyValue {
 public:
  using Items = std::vector<PyValue>;
  using Entries = std::vector<std::pair<PyValue, PyValue>>;
  using Attributes = std::vector<std::pair<std::string, PyValue>>;

  PyValue() = default;  // None
  static PyValue Bool(bool value);
  static PyValue Int(int64_t value);
  static PyValue Float(double value);
  static PyValue Str(absl::string_view utf8);
  static PyValue Bytes(absl::string_view bytes);
  static PyValue Tuple(Items items);
  // A tuple of ints.
  template <typename Ints>
  static PyValue IntTuple(const Ints& ints);
  static PyValue List(Items items);
  static PyValue Dict(Entries entries);
  // A dict whose keys are strings.
  static PyValue Dict(Attributes entries);
  // A collections.OrderedDict.
  static PyValue OrderedDict(Entries entries);

  static PyValue Global(absl::string_view module, absl::string_view name);
  // What module.name(*args) gives.
  static PyValue Call(absl::string_view module, absl::string_view name,
                      Items args);
  // An object of a class, by its __new__(), given a state; a plain class takes
  // a dict of its attributes.
  static PyValue Object(absl::string_view module, absl::string_view name,
                        PyValue state);
  // The object, given a state (BUILD), or items by keys.
  static PyValue WithState(PyValue object, PyValue state);
  static PyValue WithEntries(PyValue object, Entries entries);
  // An argparse.Namespace.
  static PyValue Namespace(Attributes attributes);
  static PyValue PersistentId(PyValue id);

 private:
  friend class PickleWriter;
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kStr,
    kBytes,
    kTuple,
    kList,
    kDict,  // keys and values in turn, as of kOrderedDict
    kOrderedDict,
    kGlobal,       // "module\nname\n" in text_, as of the next two
    kCall,         // of the items
    kObject,       // of the state, its only item
    kWithState,    // the object and the state
    kWithEntries,  // the object, then keys and values in turn
    kPersistentId  // its only item
  };

  PyValue(Kind kind, std::string text, Items items)
      : text_(std::move(text)), items_(std::move(items)), kind_(kind) {}

  std::string text_;
  Items items_;
  uint64_t bits_ = 0;  // of a bool, int or float
  Kind kind_ = Kind::kNone;
};

template <typename Ints>
PyValue PyValue::IntTuple(const Ints& ints) {
  Items items;
  items.reserve(ints.size());
  for (const int64_t value : ints) items.push_back(Int(value));
  return Tuple(std::move(items));
}

std::string WritePickle(const PyValue& value);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_PICKLE_WRITER_H_
