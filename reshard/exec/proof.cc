// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/proof.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace shardshift::reshard {

std::vector<ExpectedTensor> ExpectedTensors(const ckpt::Reader& source,
                                            const CopyPlan& plan,
                                            const NamedFingerprints& named) {
  const std::vector<ckpt::Fingerprint> stored =
      ckpt::TensorFingerprints(source.table());
  std::vector<ExpectedTensor> expected;
  for (const TensorCopy& copy : plan.tensors) {
    const TargetFragment& any = copy.targets.front();
    const ckpt::FragmentSpec& spec = plan.parts[any.part].specs[any.spec];
    const auto it = named.find({copy.source, copy.copy});
    expected.push_back({{.name = spec.tensor,
                         .role = spec.role,
                         .dtype = spec.dtype,
                         .shape = spec.shape},
                        it == named.end() ? stored[copy.source] : it->second});
  }
  std::sort(expected.begin(), expected.end(),
            [](const ExpectedTensor& a, const ExpectedTensor& b) {
              return std::tie(a.tensor.name, a.tensor.role) <
                     std::tie(b.tensor.name, b.tensor.role);
            });
  return expected;
}

ckpt::Digest128 RootFingerprintOf(std::span<const ExpectedTensor> expected) {
  ckpt::RootFingerprint root;
  for (const ExpectedTensor& e : expected) {
    root.Add(e.tensor.name, e.tensor.role, e.tensor.dtype, e.tensor.shape,
             e.fingerprint);
  }
  return root.Digest();
}

absl::Status Compare(std::span<const ExpectedTensor> expected,
                     const ckpt::Table& copy) {
  const std::vector<ckpt::Fingerprint> found = ckpt::TensorFingerprints(copy);
  for (size_t t = 0; t < std::min(expected.size(), found.size()); ++t) {
    const auto& [tensor, fingerprint] = expected[t];
    if (copy.tensors[t] == tensor && found[t] == fingerprint) continue;
    return absl::DataLossError(absl::StrCat(
        Describe(tensor), " with fingerprint ", ToString(fingerprint),
        " became ", Describe(copy.tensors[t]), " with ", ToString(found[t])));
  }
  if (expected.size() == found.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(expected.size(), " tensors became ", found.size()));
}

}  // namespace shardshift::reshard
