// What the reader of a foreign format makes of a checkpoint.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_
#define SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_

#include <string>
#include <vector>

#include "ckpt/foreign_files.h"

namespace shardshift::reshard {

struct ForeignCheckpoint {
  ckpt::ForeignFiles files;
  std::vector<std::string> notes;     // as in OpenedSource
  std::vector<std::string> left_out;  // as in OpenedSource
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_
