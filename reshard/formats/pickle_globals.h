// Which names of Python a checkpoint's pickle may mention.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_PICKLE_GLOBALS_H_
#define SHARDSHIFT_RESHARD_FORMATS_PICKLE_GLOBALS_H_

#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// What has no place in a checkpoint: modules that reach the system, such as
// os, sys and subprocess, and the builtins that run or open something. A
// pickle with one was made to attack whoever loads it.
bool IsRefusedGlobal(absl::string_view module, absl::string_view name);

// What torch.save, PyTorch's distributed checkpoint, Megatron and DeepSpeed
// write: tensors, storages, dtypes, NumPy arrays, Python's own containers,
// argparse and simple namespaces, paths, signals; and, as nothing is imported,
// any class of `megatron`, `deepspeed`, `transformer_engine` and
// `torch.distributed`.
bool IsCheckpointGlobal(absl::string_view module, absl::string_view name);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_PICKLE_GLOBALS_H_
