// What each rank of a layout owns, counted out element by element from
// Megatron's rules: nothing here asks the maps that `reshard` follows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_OWNER_ORACLE_H_
#define SHARDSHIFT_TESTS_RESHARD_OWNER_ORACLE_H_

#include <map>
#include <string>
#include <vector>

#include "ckpt/reader.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// By name of a tensor: for each element, row-major, whether a rank owns its
// optimizer state. Tensors of which it owns nothing are left out.
using OwnedElements = std::map<std::string, std::vector<bool>>;

// One for each rank. Buckets close at shared embeddings only: the model must
// be too small for others.
std::vector<OwnedElements> OwnedByRanks(const ModelConfig& model,
                                        const Layout& layout);

// Every element of every tensor is in one fragment, and the rank that wrote
// the fragment's part owns it.
void ExpectPartsOfOwners(const ckpt::Reader& reader, const ModelConfig& model,
                         const Layout& layout);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_OWNER_ORACLE_H_
