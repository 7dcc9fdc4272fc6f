// What `reshard` is asked to do.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESHARD_FLAGS_H_
#define SHARDSHIFT_TOOLS_RESHARD_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/exec/copy_plan.h"
#include "reshard/formats/format.h"
#include "reshard/formats/open_source.h"
#include "tools/run_flags.h"

namespace shardshift {

inline constexpr uint64_t kDefaultMemoryLimit = uint64_t{128} << 20;
inline constexpr uint64_t kMinMemoryLimit = uint64_t{72} << 20;
// Blocks of a codec, buffers of the disk's, the checkpoint's tables.
inline constexpr int64_t kMemoryBesidesBands = int64_t{64} << 20;

struct ReshardFlags {
  std::string source;
  std::string destination;
  std::string from;
  std::string to = "native";
  bool generic = false;
  std::optional<int64_t> vocab_size;
  bool repair_shifted = false;
  std::optional<std::string> max_shard_size;
  LayoutFlags layout;
  reshard::CopyChoice choice;
  std::string dtype;
  ckpt::Codec codec = ckpt::Codec::kNone;
  bool sequence_parallel = false;
  bool json = false;
  bool dry_run = false;
  std::string picture;
  uint64_t memory_limit = kDefaultMemoryLimit;
};

// Memory for what is under way.
int64_t MemoryOfBands(const ReshardFlags& flags);

// Errors: as ParseDType.
absl::StatusOr<reshard::CopyChoice> ChoiceOf(const ReshardFlags& flags);

// Errors: as ParseFormat.
absl::StatusOr<reshard::OpenOptions> OpenOptionsOf(const ReshardFlags& flags);

// Errors: InvalidArgument for flags that mean nothing together.
absl::Status CheckFlags(const ReshardFlags& flags, reshard::Format to,
                        int num_processes);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESHARD_FLAGS_H_
