// PyTorch's names for dtypes, and for the classes of typed storages.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_DTYPE_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_DTYPE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/dtype.h"
#include "reshard/formats/pickle_value.h"

namespace shardshift::reshard {

// "bfloat16", within the module `torch`.
absl::string_view TorchName(ckpt::DType dtype);
// "BFloat16Storage"; nullopt for a dtype that is kept in untyped storages.
std::optional<absl::string_view> TorchStorageClass(ckpt::DType dtype);

std::optional<ckpt::DType> DTypeOfTorchName(absl::string_view name);
std::optional<ckpt::DType> DTypeOfStorageClass(absl::string_view name);

// The dtype that a value is, such as `torch.bfloat16`. Errors: DataLoss if it
// is none; Unimplemented for one that no tensor here has.
absl::StatusOr<ckpt::DType> AsTorchDType(const PickleValue& value);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_DTYPE_H_
