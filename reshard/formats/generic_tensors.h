// Gathers the tensors of a generic source from files, whole or in runs.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_GENERIC_TENSORS_H_
#define SHARDSHIFT_RESHARD_FORMATS_GENERIC_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/formats/storage_check.h"
#include "reshard/formats/torch_file.h"

namespace shardshift::reshard {

// What generic tensors are told by: the name of a parameter, and `weight` or
// the role of a state of the optimizer.
struct GenericInfo {
  std::string name;
  std::string role;
  ckpt::DType dtype = ckpt::DType::kF32;
  ckpt::Shape shape = {};
};

class GenericTensors {
 public:
  // Gives its number.
  int64_t AddFile(std::string path, int64_t num_bytes);

  // Elements [first, last) of the row-major image, which lie densely there; an
  // empty range stands for all of an empty tensor, and is nothing else.
  // REQUIRES: 0 <= first <= last <= elements.
  // Errors: DataLoss if an earlier run had another dtype or shape.
  absl::Status AddRun(const GenericInfo& info, int64_t first, int64_t last,
                      int64_t file, int64_t offset_bytes);

  // Elements of a box, which lie densely at that place. REQUIRES: it has one.
  // Errors: the same.
  absl::Status AddBox(const GenericInfo& info, ckpt::Box box, int64_t file,
                      int64_t offset_bytes);

  // The same, of what is added from elsewhere, too, before or after.
  absl::Status AddCopy(const GenericInfo& info, ckpt::Box box, int64_t file,
                       int64_t offset_bytes);

  // All of it, as `tensor` has it in that file.
  // Errors: DataLoss if some of it is here already; Unimplemented for values
  // with gaps between them.
  absl::Status AddWhole(absl::string_view name, absl::string_view role,
                        const TorchTensor& tensor, int64_t file);

  // That what was added lies in the tensor's storage, of that file.
  void AddCheck(const TorchTensor& tensor, int64_t file);

  const SourceTensors& tensors() const { return tensors_; }

  // What is to be compared so that copies are known to be equal.
  // REQUIRES: no two of the added boxes of a tensor overlap.
  // Errors: DataLoss for a copy of what was not added.
  absl::StatusOr<std::vector<ReplicaCheck>> Replicas() const;

 private:
  absl::Status CheckInfo(const SourceTensor& tensor,
                         const GenericInfo& info) const;
  absl::Status AppendReplicas(const SourceTensor& tensor,
                              const std::vector<SourceChunk>& copies,
                              std::vector<ReplicaCheck>& checks) const;
  // Its index, and makes it if it is not there.
  size_t IndexOf(const GenericInfo& info);

  SourceTensors tensors_;
  absl::flat_hash_map<std::string, size_t> by_key_;
  std::map<size_t, std::vector<SourceChunk>> copies_;  // by tensor
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_GENERIC_TENSORS_H_
