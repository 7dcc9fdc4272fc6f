// What a checkpoint keeps about the data of its run, so that a resume onto
// other data, or onto another order of the same data, is refused.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_DATA_DATA_IDENTITY_H_
#define SHARDSHIFT_TRAINER_DATA_DATA_IDENTITY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "trainer/data/sample_order.h"
#include "trainer/data/token_source.h"

namespace shardshift::trainer {

// {"order", "seq_length", "source": source.Identity()}, and "seed" where the
// order depends on it: runs with equal identities consume the same tokens in
// the same order.
nlohmann::json DataIdentity(const TokenSource& source, DataOrder order,
                            uint64_t seed);

// Errors: FailedPrecondition naming each part that differs, with both values.
absl::Status CheckSameData(const nlohmann::json& stored,
                           const nlohmann::json& current);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_DATA_DATA_IDENTITY_H_
