// SPDX-License-Identifier: Apache-2.0
#include "tools/reshard_flags.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/layout.h"

namespace shardshift {

int64_t MemoryOfBands(const ReshardFlags& flags) {
  return static_cast<int64_t>(flags.memory_limit) - kMemoryBesidesBands;
}

absl::StatusOr<reshard::CopyChoice> ChoiceOf(const ReshardFlags& flags) {
  reshard::CopyChoice choice = flags.choice;
  if (flags.dtype.empty()) return choice;
  SS_ASSIGN_OR_RETURN(choice.dtype,
                      ckpt::ParseDType(absl::AsciiStrToUpper(flags.dtype)));
  return choice;
}

absl::StatusOr<reshard::OpenOptions> OpenOptionsOf(const ReshardFlags& flags) {
  reshard::OpenOptions options;
  options.foreign = {.generic = flags.generic,
                     .weights_only = flags.choice.weights_only,
                     .vocab_size = flags.vocab_size,
                     .repair_shifted = flags.repair_shifted};
  if (flags.dry_run) options.parts = ckpt::PartFiles::kAllOrNone;
  if (flags.from.empty()) return options;
  absl::StatusOr<reshard::Format> from = reshard::ParseFormat(flags.from);
  if (!from.ok()) return Annotate(from.status(), "--from");
  options.from = *from;
  return options;
}

absl::Status CheckFlags(const ReshardFlags& flags, reshard::Format to,
                        int num_processes) {
  const reshard::Layout layout = ApplyLayout(flags.layout, {});
  const bool has_layout = layout != reshard::Layout{};
  const auto refuse = [](absl::string_view problem) {
    return absl::InvalidArgumentError(problem);
  };
  if (flags.max_shard_size.has_value() && to != reshard::Format::kSafetensors) {
    return refuse("--max-shard-size is for --to safetensors");
  }
  if (to != reshard::Format::kNative) {
    const bool knows_ranks =
        to == reshard::Format::kMegatron || to == reshard::Format::kTorchDist;
    if (has_layout && !knows_ranks) {
      return refuse(absl::StrCat("--to ", flags.to,
                                 " has no parallel layout; leave the layout "
                                 "flags out"));
    }
    if (num_processes > 1) {
      return refuse(absl::StrCat(
          "--to ", flags.to, " is written by one process; leave mpirun out"));
    }
    const bool has_picture = !flags.picture.empty();
    if (has_picture || flags.codec != ckpt::Codec::kNone) {
      return refuse(absl::StrCat(has_picture ? "--picture" : "--codec",
                                 " is for --to native, not --to ", flags.to));
    }
  }
  if (flags.repair_shifted && flags.choice.weights_only) {
    return refuse(
        "--repair-shifted is for optimizer state, which --weights-only leaves "
        "behind");
  }
  reshard::Layout data_only;
  data_only.data = layout.data;
  if (flags.generic && layout != data_only) {
    return refuse(
        "--generic copies tensors of no known model; of the layout flags it "
        "takes --dp alone");
  }
  return absl::OkStatus();
}

}  // namespace shardshift
