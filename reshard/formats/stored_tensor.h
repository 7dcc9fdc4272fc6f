// How the tensors of a foreign file map to logical ones, both ways: the form
// that every format's rules are turned into.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_STORED_TENSOR_H_
#define SHARDSHIFT_RESHARD_FORMATS_STORED_TENSOR_H_

#include <string>
#include <vector>

#include "ckpt/core/box.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// One named tensor of a file, and the boxes of logical tensors it consists of.
//
// The *image* is the tensor in the orientation of the logical ones: the stored
// tensor itself or, if `transposed`, its transpose. A piece's box lies dense
// and row-major at elements [offset, offset + NumElements(box)) of the
// row-major image. Pieces are ascending by offset and cover the image without a
// gap, unless a format pads.
//
// So for GPT-2's c_attn, of shape [E, 3E] in the file and transposed, the image
// is [3E, E], and q, k and v [E, E] lie at 0, E*E and 2*E*E: row r of k is
// column E + r of the file.
struct StoredTensor {
  std::string name = {};
  ckpt::Shape shape = {};  // in the file
  std::vector<Piece> pieces = {};
  bool transposed = false;  // REQUIRES: two dimensions

  bool operator==(const StoredTensor&) const = default;
};

// The shape of the image.
inline ckpt::Shape ImageShape(const StoredTensor& tensor) {
  if (!tensor.transposed) return tensor.shape;
  return {tensor.shape[1], tensor.shape[0]};
}

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_STORED_TENSOR_H_
