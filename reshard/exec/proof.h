// That a copy holds what was read of its source.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_PROOF_H_
#define SHARDSHIFT_RESHARD_EXEC_PROOF_H_

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/format/table.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_files.h"
#include "reshard/exec/copy_plan.h"

namespace shardshift::reshard {

struct ExpectedTensor {
  ckpt::Tensor tensor;
  ckpt::Fingerprint fingerprint;
};

// What the copy must hold, ascending by (name, role). `named`: as in
// CopiedFiles, of the whole plan.
std::vector<ExpectedTensor> ExpectedTensors(const ckpt::Reader& source,
                                            const CopyPlan& plan,
                                            const NamedFingerprints& named);

ckpt::Digest128 RootFingerprintOf(std::span<const ExpectedTensor> expected);

// Errors: DataLoss, naming the first tensor that is not as expected.
absl::Status Compare(std::span<const ExpectedTensor> expected,
                     const ckpt::Table& copy);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_PROOF_H_
