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
  std::string file;  // name within the step directory
  // "" where none is concerned; `fragment` is its box, "[0:4,8:16]".
  std::string tensor = {};
  std::string role = {};
  std::string fragment = {};
  int64_t offset_bytes = 0;  // in the file
  std::string message = {};  // names all of it
};

struct VerifyReport {
  int64_t num_faults = 0;
  int64_t bytes_checked = 0;
};

// Checks every byte of every file that is not payload, and that each part
// agrees with the index; `deep` also every block of payload, and the
// fingerprints. Goes on after a fault. Calls `progress` now and then with the
// bytes that were checked and their total; one call of either at a time, but
// of `progress` on any thread. Errors: NotFound without an index. An index
// that does not decode is the only fault then reported.
absl::StatusOr<VerifyReport> Verify(
    const std::string& step_dir, bool deep,
    absl::FunctionRef<void(const Fault&)> on_fault,
    absl::FunctionRef<void(int64_t done, int64_t total)> progress =
        [](int64_t, int64_t) {});

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_VERIFY_H_
