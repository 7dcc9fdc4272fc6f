// A file of torch.save whose tensors are to be filled by the engine.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_FILE_PLAN_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_FILE_PLAN_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/foreign_writer.h"
#include "reshard/formats/pickle_writer.h"
#include "reshard/formats/storage_pieces.h"
#include "reshard/formats/torch_writer.h"

namespace shardshift::reshard {

class TorchFilePlan {
 public:
  // `folder`: as of TorchFileBuilder.
  explicit TorchFilePlan(absl::string_view folder) : builder_(folder) {}

  // A tensor with a storage of its own, dense. What no piece covers is zero.
  // REQUIRES: pieces ascend and do not overlap.
  PyValue AddTensor(ckpt::DType dtype, const ckpt::Shape& shape,
                    std::vector<StoragePiece> pieces);

  // The file that holds `root`, in which the tensors are.
  ckpt::ForeignFile Finish(std::string name, const PyValue& root) &&;

 private:
  TorchFileBuilder builder_;
  std::vector<std::vector<StoragePiece>> pieces_;  // by storage
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_FILE_PLAN_H_
