// Values of a pickle as JSON, from which the same pickle can be written again.
//
// None, bools, numbers, texts and lists are what they are in JSON, a dict whose
// keys are all texts is an object. Everything else is an object whose first key
// is "py", the kind:
//   {"py": "tuple" | "set", "items": [...]}
//   {"py": "dict", "items": [[key, value], ...]}   keys of other kinds
//   {"py": "float", "value": "inf" | "-inf" | "nan"}
//   {"py": "bytes", "base64": "..."}
//   {"py": "global", "name": "module name"}
//   {"py": "call", "name": "module name", "args": [...], "state": ...,
//    "items": [[key, value], ...] }                state and items if it has
//    some
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_PICKLE_JSON_H_
#define SHARDSHIFT_RESHARD_FORMATS_PICKLE_JSON_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/pickle_writer.h"

namespace shardshift::reshard {

// Errors: Unimplemented for what has no such form: integers beyond 64 bits,
// what lies outside the pickle, keyword arguments; ResourceExhausted for more
// than 2^20 values, or 64 one in the other.
absl::StatusOr<nlohmann::json> PickleToJson(const PickleValue& value);

// Whoever loads the pickle calls what it names, so that few globals may be in
// it: plain containers of values, torch's dtypes, Megatron's enums.
// Errors: DataLoss for JSON that is no such form; PermissionDenied for another
// global.
absl::StatusOr<PyValue> PickleFromJson(const nlohmann::json& json);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_PICKLE_JSON_H_
