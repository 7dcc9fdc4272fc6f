// Looking for damage anywhere in a checkpoint.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_VERIFY_H_
#define SHARDSHIFT_CKPT_VERIFY_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace shardshift::ckpt {

struct Fault {
  std::string file;    // name within the step directory
  std::string tensor;  // "" where none is concerned
  int64_t offset_bytes = 0;
  std::string message;  // names all of it
};

struct VerifyReport {
  int64_t num_faults = 0;
  int64_t bytes_checked = 0;
};

// Checks every byte of every file that is not payload, and that each part
// agrees with the index; `deep` also every block of payload. Goes on after a
// fault. Errors: NotFound without an index. An index that does not decode is
// the only fault then reported.
absl::StatusOr<VerifyReport> Verify(
    const std::string& step_dir, bool deep,
    absl::FunctionRef<void(const Fault&)> on_fault);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_VERIFY_H_
