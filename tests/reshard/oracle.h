// What a rank's parameters must hold, spelled out element by element: whole
// fused matrices are put together row by row, then cut.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_ORACLE_H_
#define SHARDSHIFT_TESTS_RESHARD_ORACLE_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// An element of a logical tensor; padding by default.
struct Label {
  int64_t tensor = -1;
  int64_t index = -1;  // row-major

  bool operator==(const Label&) const = default;
  bool is_padding() const { return tensor < 0; }
};
std::ostream& operator<<(std::ostream& out, const Label& label);

// The labels of parameter `name` of tensor-parallel rank `rank` of `ranks`.
std::vector<Label> LocalLabels(const ModelConfig& model,
                               const std::string& name, int64_t ranks,
                               int64_t rank);

// Writes what `pieces` say into `labels`, a buffer of labels. Gives the
// number of elements that were not padding before: written twice.
int64_t PlacePieces(const ModelConfig& model, const std::vector<Piece>& pieces,
                    std::vector<Label>& labels);

// Whether every tensor-parallel rank has the whole of a logical tensor.
bool IsReplicated(const std::string& tensor_name);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_ORACLE_H_
