// A picture of a layout: who holds what.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_LAYOUT_PICTURE_H_
#define SHARDSHIFT_TOOLS_LAYOUT_PICTURE_H_

#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "tools/picture.h"

namespace shardshift {

// A row for each pipeline stage, a column for each tensor-parallel rank, in a
// cell the data-parallel ranks, each with a bar as long as its bytes. Of a long
// axis the middle is left out.
// REQUIRES: Validate(model, layout) is OK.
Picture LayoutPicture(const reshard::ModelConfig& model,
                      const reshard::Layout& layout);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_LAYOUT_PICTURE_H_
