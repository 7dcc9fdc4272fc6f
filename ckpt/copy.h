// Copying a checkpoint, every byte verified on its way.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_COPY_H_
#define SHARDSHIFT_CKPT_COPY_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "ckpt/reader.h"

namespace shardshift::ckpt {

// Makes RUN/step-N, with the same bytes as `source`: its index and the parts
// that are listed there. A block of payload is checked before it is written,
// all other bytes after. The copy grows in RUN/step-N.partial and is durable
// when it gets its name; RUN, which is made if need be, is locked meanwhile,
// and its `latest` stays as it is. On an error nothing is left.
// `progress` is called now and then, also from other threads, with bytes
// copied so far and their total.
// Errors: AlreadyExists if step N is there; FailedPrecondition if a run saves
// into RUN; DataLoss for damage in `source`, naming file, tensor and offset.
absl::Status CopyCheckpoint(
    const Reader& source, const std::string& run_dir,
    absl::FunctionRef<void(int64_t done, int64_t total)> progress =
        [](int64_t, int64_t) {});

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_COPY_H_
