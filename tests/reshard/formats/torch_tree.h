// A file for torch.load as a tree that a test can change and write again.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_FORMATS_TORCH_TREE_H_
#define SHARDSHIFT_TESTS_RESHARD_FORMATS_TORCH_TREE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/pickle_writer.h"
#include "reshard/formats/torch_file.h"
#include "reshard/formats/torch_writer.h"

namespace shardshift::reshard {

// In `root` dicts are objects in their order, with "#5" for the key 5; a tensor
// is {"tensor": i}, i into `tensors`; an object is {"kept": ...}, as
// PickleToJson has it.
struct TorchTree {
  struct Tensor {
    ckpt::DType dtype = ckpt::DType::kF32;
    ckpt::Shape shape;
    std::string bytes;
  };

  static absl::StatusOr<TorchTree> Read(const std::string& path);
  absl::Status Write(const std::string& path) const;

  const Tensor& At(const nlohmann::ordered_json& value) const {
    return tensors[value.at("tensor").get<size_t>()];
  }

  nlohmann::ordered_json root;
  std::vector<Tensor> tensors;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_FORMATS_TORCH_TREE_H_
