// Reads bytes as a pickle, and asks every node for everything.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "reshard/formats/common_values.h"
#include "reshard/formats/pickle.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/torch_dtype.h"

namespace shardshift::reshard {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void Ask(const PickleValue& value) {
  value.AsBool().IgnoreError();
  value.AsInt().IgnoreError();
  value.AsDouble().IgnoreError();
  value.AsString().IgnoreError();
  value.AsBytes().IgnoreError();
  value.AsInts().IgnoreError();
  value.AsEnum().IgnoreError();
  value.AsPath().IgnoreError();
  value.Get("a").IgnoreError();
  value.Attribute("a").IgnoreError();
  AsShape(value).IgnoreError();
  AsNumpyArray(value).IgnoreError();
  AsBytesIo(value).IgnoreError();
  AsTorchDType(value).IgnoreError();
}

void Read(std::string bytes) {
  const size_t num_bytes = bytes.size();
  const auto pickle = Pickle::Parse(std::move(bytes));
  if (!pickle.ok()) return;
  Require(pickle->num_nodes() <= num_bytes);
  for (Pickle::Id id = 0; id < pickle->num_nodes(); ++id) {
    Ask(PickleValue(*pickle, id));
  }
  WalkPickle(PickleValue(*pickle), {.max_visits = 2000},
             [](const PickleValue& value, int64_t) {
               Require(value.path().size() < 200'000);
               return true;
             })
      .IgnoreError();
}

}  // namespace
}  // namespace shardshift::reshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardshift::reshard::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}
