// Small values of DeepSpeed's files, for the state of a checkpoint.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_VALUES_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_VALUES_H_

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/pickle_value.h"

namespace shardshift::reshard {

// The numbers, texts, bools and lists of numbers among the entries of a
// mapping, or the attributes of an object; anything else is left out.
absl::StatusOr<nlohmann::json> ScalarsOf(const PickleValue& value);

// How many steps an optimizer has made: a number, or a tensor of one.
// Errors: DataLoss for what is neither, naming the file.
absl::StatusOr<double> ReadStep(const OpenedTorch& source,
                                const PickleValue& step);

// A number for JSON, an int where it is one.
nlohmann::json NumberOf(double value);

// One number, or the list of those that differ; null if there is none.
nlohmann::json StepsOf(const std::set<double>& steps);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_VALUES_H_
