// What a rank's parameter consists of where whole tensors are stored.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_LOCAL_IMAGE_H_
#define SHARDSHIFT_RESHARD_FORMATS_LOCAL_IMAGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// The elements of `parameter`, which rank `share` has of it, as a tensor of one
// dim whose chunks ascend; vocabulary padding included. `stored` has all of the
// parameter at `index` of its first dims.
// Errors: DataLoss if the shapes do not fit; Unimplemented for chunks with gaps
// between their values.
absl::StatusOr<SourceTensor> LocalImage(const Parameter& parameter,
                                        const TensorShare& share,
                                        const SourceTensor& stored,
                                        const ckpt::Shape& index);

// Elements [begin, end) of a tensor of one dim whose chunks ascend, as chunks
// of another that has the first of them at `to`.
void AppendRange(const SourceTensor& from, int64_t begin, int64_t end,
                 int64_t to, SourceTensor& into);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_LOCAL_IMAGE_H_
